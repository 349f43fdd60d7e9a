"""nnsight over a model with eager attention, without which transformers makes no attention patterns."""

from __future__ import annotations

from nnsight_worker import Peer
from serve import serve


class EagerPeer(Peer):
    ATTENTION = "eager"


if __name__ == "__main__":
    serve(EagerPeer())
