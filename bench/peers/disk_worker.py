"""The disk alone: the weights read once, past the page cache."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

from serve import Stopwatch, serve

CHUNK = 8 << 20


class Peer:
    def load(self, model: str, threads: int, dtype: str | None = None) -> dict[str, Any]:
        self.files = sorted(Path(model).glob("*.safetensors"))
        return {}

    def pass_over_weights(self, ids: list[int]) -> dict[str, Any]:
        buffer = mmap.mmap(-1, CHUNK)
        with Stopwatch() as watch:
            for path in self.files:
                file = os.open(path, os.O_RDONLY | os.O_DIRECT)
                while os.readv(file, [buffer]):
                    pass
                os.close(file)
        return {"samples": watch.samples}


serve(Peer())
