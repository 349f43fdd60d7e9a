#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {

void check(bool holds, std::string_view what) {
  if (!holds) throw InternalError("this is a bug in gemloupe, please report it: " + std::string(what));
}

}  // namespace v0
}  // namespace gemloupe
