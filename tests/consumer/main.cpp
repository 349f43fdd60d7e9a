// Another project that uses gemloupe as it is installed.
#include <gemloupe/base/errors.h>
#include <gemloupe/version.h>

#include <iostream>

int main() {
  try {
    gemloupe::check(false, "the library is linked");
  } catch (const gemloupe::InternalError& error) {
    std::cout << "gemloupe " << gemloupe::kVersion << " with torch " << gemloupe::kTorchVersion << "\n" << error.what();
  }
}
