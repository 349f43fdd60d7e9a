"""Every error of gemloupe. Each has a page in docs/errors/ with its symptom, its cause, wrong code and right code.

They derive from the built-in exception that a Python user expects, so that ``except KeyError`` or ``hasattr`` work as usual.
"""

from __future__ import annotations

from . import _core


class Error(Exception):
    """Base of all errors of gemloupe; ``slug`` names the page ``docs/errors/<slug>.md``."""

    slug = "error"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class UnknownName(Error, AttributeError, KeyError):
    """No value, module or option has this name; the nearest are given."""

    slug = "unknown-name"


class Absent(Error, AttributeError, KeyError):
    """The name exists, this checkpoint lacks it; the family's reason is given."""

    slug = "absent"


class NotInThisRun(Error, AttributeError):
    """The checkpoint has the value, this prompt does not bring it."""

    slug = "not-in-this-run"


class OutOfOrder(Error, RuntimeError):
    """The run has passed the place where this could be read or written."""

    slug = "out-of-order"


class ReadOnly(Error, AttributeError):
    """A derived value was written."""

    slug = "read-only"


class BadValue(Error, ValueError):
    """A written tensor has the wrong shape, dtype or device."""

    slug = "bad-value"


class CannotSkip(Error, KeyError):
    """Something behind a module reads what is made inside it, so it cannot be left out."""

    slug = "cannot-skip"


class CannotCall(Error, TypeError):
    """A module that one tensor alone does not run."""

    slug = "cannot-call"


class OutsideTrace(Error, RuntimeError):
    """A value was used with no run going on, or after its run ended."""

    slug = "outside-trace"


class SnapshotWritten(Error, RuntimeError):
    """What ``.save()`` returned was written inside its own trace."""

    slug = "snapshot-written"


class NotFound(Error, FileNotFoundError):
    """No such checkpoint, revision or file; where it was looked for is given."""

    slug = "not-found"


class BadCheckpoint(Error, ValueError):
    """A file that is broken, cut short, hostile, or contradicts its config."""

    slug = "bad-checkpoint"


class BadConfig(Error, ValueError):
    """A config key or value that is unknown or has no meaning here."""

    slug = "bad-config"


class BadTokenizer(Error, ValueError):
    """A vocabulary or chat template that cannot be used."""

    slug = "bad-tokenizer"


class BadPrompt(Error, ValueError):
    """An empty prompt, ids outside the vocabulary, broken masks or positions."""

    slug = "bad-prompt"


class BadOption(Error, ValueError):
    """An option's value is not one of those it takes."""

    slug = "bad-option"


class CannotWrite(Error, OSError):
    """An output file cannot be written; nothing is left half-written."""

    slug = "cannot-write"


class InternalError(Error, AssertionError):
    """A bug of gemloupe."""

    slug = "internal-error"


_CLASSES = [c for c in list(globals().values()) if isinstance(c, type) and issubclass(c, Error)]
_core.set_error_classes({c.slug: c for c in _CLASSES} | {"interrupted": KeyboardInterrupt})
