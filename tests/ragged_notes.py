"""Random requests to a real engine, and what each of them gives when it is alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from timbrel_bundle.bundle import Bundle
from timbrel_bundle.manifest import written_ranges
from timbrel_server.decoder.runner import Runner
from timbrel_server.decoder.sessions import open_sessions
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.request import (
    Delivery,
    Finish,
    Frame,
    NoteRequest,
    RequestHandle,
    SamplingSettings,
)
from timbrel_server.engine.scheduler import FrameClock
from timbrel_server.errors import OverloadedError
from timbrel_server.served_bundles.served_bundle import token_layout

PATIENCE_SECONDS = 120.0


def hand_out(deliveries: Sequence[tuple[RequestHandle, Delivery]]) -> None:
    """Delivers at once, on the engine's thread."""
    for handle, delivery in deliveries:
        handle.receive(delivery)


def open_runner(bundle: Bundle, n_slots: int) -> Runner:
    """A runner on the CPU, with one thread."""
    return Runner(open_sessions(bundle, "cpu", n_threads=1), bundle.manifest, n_slots)


def frame_rate(bundle: Bundle) -> float:
    codec = bundle.manifest.codec
    return codec.sample_rate / codec.hop_length


@dataclass
class Player:
    """Whoever asked for one note: lets the key go, or leaves, after so many frames have come."""

    engine: EnginePool
    request: NoteRequest
    releases_after: int | None = None
    leaves_after: int | None = None
    frames: list[Frame] = field(default_factory=list)
    last: Delivery | None = None
    gone: threading.Event = field(default_factory=threading.Event)
    handle: RequestHandle | None = None

    def play(self) -> None:
        """Asks, and asks again where the queue is full."""
        while self.handle is None:
            try:
                handle = RequestHandle(self.request, self._receive)
                self.engine.accept(handle)
                self.handle = handle
            except OverloadedError:
                threading.Event().wait(0.002)
        self._act()

    @property
    def finished(self) -> bool:
        return self.last is not None and self.last.finish is not None

    @property
    def released_early(self) -> bool:
        """Whether the key went up before the time that was asked for."""
        return self.handle is not None and self.handle.held_frames < self.request.held_frames

    def _receive(self, delivery: Delivery) -> None:
        self.frames += delivery.frames
        if delivery.finish is not None or delivery.error is not None:
            self.last = delivery
            self.gone.set()
        else:
            self._act()

    def _act(self) -> None:
        if self.handle is None:  # its first frame came before `accept` returned
            return
        if self.releases_after is not None and len(self.frames) >= self.releases_after:
            self.engine.release(self.handle)
        if self.leaves_after is not None and len(self.frames) >= self.leaves_after and not self.gone.is_set():
            self.engine.cancel(self.handle)
            self.gone.set()


def random_player(rng: random.Random, engine: EnginePool, bundle: Bundle) -> Player:
    """A request within the bundle's ranges; a third let the key go while it sounds, a sixth leave."""
    ranges, rate = written_ranges(bundle.manifest), frame_rate(bundle)
    longest = int(ranges.seconds_max * rate)
    radius, held = rng.random(), rng.randint(1, longest)
    timbre = (radius * rng.uniform(-0.7, 0.7), radius * rng.uniform(-0.7, 0.7))
    sampling = SamplingSettings(
        temperature=rng.choice([0.0, 0.7, 1.0, 1.3]),
        top_k=rng.choice([1, 5, 40, 256]),
        top_p=rng.choice([0.5, 0.95, 1.0]),
    )
    request = NoteRequest(
        timbre,
        pitch=rng.randint(ranges.pitch_min, ranges.pitch_max),
        velocity=rng.randint(ranges.velocity_min, ranges.velocity_max),
        held_frames=held,
        seed=rng.getrandbits(64),
        sampling=sampling,
        # Some are played live: they wait for real time now and then while others go on.
        frames_ahead=rng.choice([None, None, None, 5]) if held < rate / 2 else None,
    )
    fate = rng.random()
    return Player(
        engine,
        request,
        releases_after=rng.randint(0, held) if fate < 1 / 3 else None,
        leaves_after=rng.randint(0, held) if fate > 5 / 6 else None,
    )


def alone(engine: EnginePool, request: NoteRequest, held_frames: int) -> tuple[list[Frame], Finish]:
    """A note of the engine while it has no other, held for so long from the start."""
    wanted = NoteRequest(
        request.timbre, request.pitch, request.velocity, held_frames, request.seed, request.sampling
    )
    player = Player(engine, wanted)
    player.play()
    assert player.gone.wait(PATIENCE_SECONDS)
    assert player.last is not None and player.last.finish is not None
    return player.frames, player.last.finish


def start_engine(
    bundle: Bundle, n_slots: int, queue_capacity: int = 8, runner: Runner | None = None
) -> EnginePool:
    """A running engine of its own; `runner` is of that many slots."""
    engine = EnginePool(
        [runner or open_runner(bundle, n_slots)],
        token_layout(bundle.manifest),
        queue_capacity,
        hand_out,
        frame_clock=FrameClock(frame_rate(bundle)),
    )
    engine.start()
    return engine


def start_pool(bundle: Bundle, n_slots: int, n_engines: int) -> EnginePool:
    """A running pool of several engines on the CPU."""
    pool = EnginePool(
        [open_runner(bundle, n_slots) for _ in range(n_engines)],
        token_layout(bundle.manifest),
        8,
        hand_out,
        frame_clock=FrameClock(frame_rate(bundle)),
    )
    pool.start()
    return pool


def play_together(rng: random.Random, players: Sequence[Player], crowd: EnginePool) -> Iterator[Player]:
    """Plays notes in waves and yields each, in order, once it has ended or been left.

    A wave is one note or up to three for each slot, more than may wait; before the next one the company
    thins out. So notes join and change rows while others sound, at every batch size.
    """

    def feed() -> None:
        n_played = 0
        while n_played < len(players):
            wave = players[n_played : n_played + rng.choice([1, 3, crowd.n_slots, 3 * crowd.n_slots])]
            for player in wave:
                player.play()
            n_played += len(wave)
            n_left = rng.randint(0, crowd.n_slots // 2)
            for player in players[: max(0, n_played - n_left)]:
                assert player.gone.wait(PATIENCE_SECONDS)

    def feed_or_give_up() -> None:
        try:
            feed()
        except BaseException:
            for player in players:
                player.gone.set()
            raise

    with ThreadPoolExecutor(1) as feeder:
        fed = feeder.submit(feed_or_give_up)
        for player in players:
            player.gone.wait()
            yield player
        fed.result()


def check_empty(crowd: EnginePool) -> None:
    """Nothing is in hand: every slot is free."""
    for _ in range(1000):
        if crowd.n_occupied == 0 and crowd.n_waiting == 0:
            break
        threading.Event().wait(0.01)
    assert (crowd.n_occupied, crowd.n_waiting) == (0, 0)


def check_alone(player: Player, solo: EnginePool) -> None:
    """A finished note has the codes and the end that it has alone."""
    assert player.handle is not None and player.last is not None
    held = player.handle.held_frames
    assert (player.frames, player.last.finish) == alone(solo, player.request, held), player.request


def check_crowd(bundle: Bundle, crowd: EnginePool, solo: EnginePool, n_requests: int) -> None:
    """Plays random notes together, then each that finished alone: the codes are the same, no slot is left."""
    rng = random.Random(0)
    players = [random_player(rng, crowd, bundle) for _ in range(n_requests)]
    finished = [player for player in play_together(rng, players, crowd) if player.finished]
    check_empty(crowd)
    assert n_requests // 2 < len(finished) < n_requests
    for player in finished:
        check_alone(player, solo)
    assert sum(player.released_early for player in finished) > n_requests // 20
