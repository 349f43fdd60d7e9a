// Every error that gemloupe raises. One class per kind: a kind has a page in docs/errors/, an exception class in Python
// and an exit code on the command line. A message names what is wrong, what was expected and found, and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace gemloupe {
inline namespace v0 {

class Error : public std::runtime_error {
 public:
  /// `slug` names the page docs/errors/<slug>.md.
  Error(std::string_view slug, const std::string& message) : std::runtime_error(message), slug_(slug) {}
  std::string_view slug() const { return slug_; }

 private:
  std::string_view slug_;
};

#define GEMLOUPE_ERROR(Name, slug)                                      \
  class Name : public Error {                                           \
   public:                                                              \
    explicit Name(const std::string& message) : Error(slug, message) {} \
  }

// What a trace refuses.
GEMLOUPE_ERROR(UnknownName, "unknown-name");  ///< no value, module or option has this name; the nearest are given
GEMLOUPE_ERROR(Absent, "absent");  ///< the name exists, this checkpoint lacks it; the family's reason is given
GEMLOUPE_ERROR(NotInThisRun,
               "not-in-this-run");           ///< the checkpoint has it, this prompt does not bring it (no image, …)
GEMLOUPE_ERROR(OutOfOrder, "out-of-order");  ///< the run has passed the place where this could be read or written
GEMLOUPE_ERROR(ReadOnly, "read-only");       ///< a derived value was written
GEMLOUPE_ERROR(BadValue, "bad-value");       ///< a written tensor has the wrong shape, dtype or device
GEMLOUPE_ERROR(CannotSkip, "cannot-skip");   ///< something behind a module reads what is made inside it
GEMLOUPE_ERROR(CannotCall, "cannot-call");   ///< a module that a tensor alone does not run
GEMLOUPE_ERROR(OutsideTrace, "outside-trace");        ///< a value was used with no run going on, or after its run ended
GEMLOUPE_ERROR(SnapshotWritten, "snapshot-written");  ///< what .save() returned was written inside its own trace

// What loading and prompting refuse.
GEMLOUPE_ERROR(NotFound, "not-found");  ///< no such checkpoint, revision or file; where it looked is given
GEMLOUPE_ERROR(BadCheckpoint,
               "bad-checkpoint");               ///< a file that is broken, cut short, hostile or contradicts its config
GEMLOUPE_ERROR(BadConfig, "bad-config");        ///< a config key or value that is unknown or has no meaning here
GEMLOUPE_ERROR(BadTokenizer, "bad-tokenizer");  ///< a vocabulary or chat template that cannot be used
GEMLOUPE_ERROR(BadPrompt, "bad-prompt");  ///< an empty prompt, ids outside the vocabulary, broken masks or positions
GEMLOUPE_ERROR(BadOption, "bad-option");  ///< an option's value is not one of those it takes
GEMLOUPE_ERROR(CannotWrite, "cannot-write");  ///< an output file cannot be written; nothing is left half-written
GEMLOUPE_ERROR(Interrupted, "interrupted");   ///< Ctrl-C

/// A bug of ours, never a user's mistake.
GEMLOUPE_ERROR(InternalError, "internal-error");

#undef GEMLOUPE_ERROR

/// A check of our own invariants: fails as InternalError, which asks for a report.
void check(bool holds, std::string_view what);

}  // namespace v0
}  // namespace gemloupe
