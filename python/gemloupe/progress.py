"""A progress bar: tqdm's where it is installed, else lines on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TypeVar

Item = TypeVar("Item")


def progress(
    iterable: Iterable[Item], desc: str | None = None, total: int | None = None, **options: Any
) -> Iterable[Item]:
    """`iterable`, while its progress is shown on standard error; called like ``tqdm.tqdm``, whose other options are passed on."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _plain(iterable, desc or "", total)
    return tqdm(iterable, desc=desc, total=total, **options)


def _plain(iterable: Iterable[Item], desc: str, total: int | None) -> Iterator[Item]:
    """A line that is overwritten on a terminal, one line at the end elsewhere."""
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    of = f"/{total}" if total is not None else ""
    terminal, done = sys.stderr.isatty(), 0
    for done, item in enumerate(iterable, 1):
        yield item
        if terminal:
            print(f"\r{desc} {done}{of}", end="", file=sys.stderr, flush=True)
    print(f"{'' if not terminal else chr(13)}{desc} {done}{of}", file=sys.stderr)
