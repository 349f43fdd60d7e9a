#include <doctest/doctest.h>

#include "gemloupe/base/errors.h"

using namespace gemloupe;

namespace {

template <class E>
void check_error(std::string_view slug) {
  CAPTURE(slug);
  try {
    throw E("what, where, and what to do");
  } catch (const Error& error) {  // whoever wants one handler for all of ours
    CHECK(error.slug() == slug);
    CHECK(std::string(error.what()) == "what, where, and what to do");
  }
  CHECK_THROWS_AS(throw E("x"), E);
  CHECK_THROWS_AS(throw E("x"), std::runtime_error);
}

}  // namespace

TEST_CASE("errors: a class a kind, a page a class") {
  check_error<UnknownName>("unknown-name");
  check_error<Absent>("absent");
  check_error<NotInThisRun>("not-in-this-run");
  check_error<OutOfOrder>("out-of-order");
  check_error<ReadOnly>("read-only");
  check_error<BadValue>("bad-value");
  check_error<OutsideTrace>("outside-trace");
  check_error<SnapshotWritten>("snapshot-written");
  check_error<NotFound>("not-found");
  check_error<BadCheckpoint>("bad-checkpoint");
  check_error<BadConfig>("bad-config");
  check_error<BadTokenizer>("bad-tokenizer");
  check_error<BadPrompt>("bad-prompt");
  check_error<BadOption>("bad-option");
  check_error<CannotWrite>("cannot-write");
  check_error<Interrupted>("interrupted");
  check_error<InternalError>("internal-error");
}

TEST_CASE("errors: a broken invariant asks for a report") {
  CHECK_NOTHROW(check(true, "one is one"));
  try {
    check(false, "one is two");
    FAIL_CHECK("nothing was refused");
  } catch (const InternalError& error) {
    const std::string message = error.what();
    CHECK(message.find("one is two") != std::string::npos);
    CHECK(message.find("report") != std::string::npos);
  }
}
