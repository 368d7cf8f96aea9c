"""A key that is held for longer than the model writes: the frames with which its note goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, cycle

from timbrel_protos.timbrel.v1 import synthesizer_pb2 as pb
from timbrel_server.engine.request import Frame

REPEATED_SECONDS = 1.0
"""So much of a note is repeated at most: some turns of a vibrato, and nothing of how the note began."""


class HeldKey:
    """Goes on with a note in code space: the codebooks that move repeat the last frames there and back, the
    others leave what they said as it is.

    It turns round where the first codebook that moves, the fundamental, is highest, once in the first and
    once in the last third of what is repeated: a vibrato turns there by itself, so that it goes on as it was.
    The third between is always repeated: were the two next to each other, the note would stand still.
    """

    def __init__(self, codec: pb.CodecSpec) -> None:
        self._hold = [code if code < codec.codebook_size else None for code in codec.hold]
        self._n_silent = codec.lead_frames
        n_repeated = max(1, round(REPEATED_SECONDS * codec.sample_rate / codec.hop_length))
        self._last: deque[Frame] = deque(maxlen=n_repeated)

    def hear(self, frames: Iterable[Frame]) -> None:
        """Takes the note's next frames, up to where it is to go on."""
        for frame in frames:
            if self._n_silent:
                self._n_silent -= 1
            else:
                self._last.append(frame)

    def frames(self) -> Iterator[Frame]:
        """The frames that follow, for ever."""
        repeated = [
            tuple(code if hold is None else hold for code, hold in zip(frame, self._hold, strict=True))
            for frame in self._last
        ]
        moving = self._hold.index(None) if None in self._hold else 0
        height = [frame[moving] for frame in repeated]
        third = max(1, len(repeated) // 3)
        places = range(len(repeated))
        early = max(places[:third], key=height.__getitem__)
        late = max(reversed(places[-third:]), key=height.__getitem__)  # of equal ones the last
        back = range(len(repeated) - 2, early, -1)
        there_and_back = chain(range(early, late), range(late, early, -1))
        return (repeated[place] for place in chain(back, cycle(there_and_back if early < late else [late])))
