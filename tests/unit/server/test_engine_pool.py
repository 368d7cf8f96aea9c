"""Several engines behind one queue, over runners that write a note of as many frames as are held."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
from waiting import wait_for, wait_until_blocked

from timbrel_server.engine import engine, request_queue
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import ClientKey, Delivery, Frame, NoteRequest, RequestHandle
from timbrel_server.engine.slots import StepInput
from timbrel_server.errors import OverloadedError, UnavailableError

EOS = 1001
LAYOUT = TokenLayout(n_codebooks=1, bos_id=1000, eos_id=EOS, max_frames=60)
PATIENCE_SECONDS = 30.0


class SeedRunner:
    """Writes the seed in every frame. Steps only while `gate` is set."""

    buckets: Sequence[int] = (1, 2)
    can_move = True

    def __init__(self) -> None:
        self.seeds = [0, 0]
        self.begun: list[int] = []
        self.is_stepping = threading.Event()  # since its first step: what it began with is in `begun`
        self.gate = threading.Event()
        self.failure: Exception | None = None

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def admit(self, notes: Sequence[tuple[int, NoteRequest]]) -> None:
        for row, request in notes:
            self.seeds[row] = request.seed
            self.begun.append(request.seed)

    def move(self, source: int, target: int) -> None:
        self.seeds[target] = self.seeds[source]

    def step(self, given: StepInput) -> npt.NDArray[np.int64]:
        self.is_stepping.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        if self.failure is not None:
            raise self.failure
        return np.where(given.gate, self.seeds[: len(given.gate)], EOS)[:, None]


class NarrowRunner(SeedRunner):
    """One slot."""

    buckets: Sequence[int] = (1,)


def hand_out(deliveries: Sequence[tuple[RequestHandle, Delivery]]) -> None:
    for handle, delivery in deliveries:
        handle.receive(delivery)


class Pool:
    """Three engines of two slots, and what their notes deliver."""

    def __init__(self) -> None:
        self.runners = [SeedRunner() for _ in range(3)]
        self.dead = threading.Event()
        self.pool = EnginePool(self.runners, LAYOUT, queue_capacity=5, post=hand_out, on_death=self.dead.set)
        self._heard: list[queue.Queue[Delivery]] = []

    def submit(self, seed: int, held_frames: int = 5) -> RequestHandle:
        self._heard.append(queue.Queue())
        handle = RequestHandle(NoteRequest((0.0, 0.0), 60, 100, held_frames, seed), self._heard[-1].put)
        self.pool.accept(handle)
        return handle

    def whole(self, number: int) -> tuple[list[Frame], Delivery]:
        frames: list[Frame] = []
        while True:
            delivery = self._heard[number].get(timeout=PATIENCE_SECONDS)
            frames += delivery.frames
            if delivery.finish is not None or delivery.error is not None:
                return frames, delivery

    def wait_until_all_step(self) -> None:
        """The gates being shut, each goes on to have the notes that it has begun, and no others."""
        for runner in self.runners:
            assert runner.is_stepping.wait(PATIENCE_SECONDS)

    def open(self) -> None:
        for runner in self.runners:
            runner.gate.set()

    def wait_until_idle(self) -> None:
        wait_for(
            lambda: self.pool.n_occupied == self.pool.n_waiting == 0,
            "every slot to be free",
            seen=lambda: f"{self.pool.n_occupied} in use, {self.pool.n_waiting} requests wait",
        )


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    made.open()
    made.pool.stop()


def test_requests_go_where_there_is_most_room(pool: Pool) -> None:
    for seed in range(6):
        pool.submit(seed)
    assert (pool.pool.n_slots, pool.pool.n_waiting) == (6, 6)
    pool.pool.start()
    while pool.pool.n_waiting:
        threading.Event().wait(0.001)
    pool.open()
    for number in range(6):
        assert pool.whole(number)[0] == [(number,)] * 5
    assert [len(runner.begun) for runner in pool.runners] == [2, 2, 2]
    assert sorted(seed for runner in pool.runners for seed in runner.begun) == list(range(6))
    pool.wait_until_idle()


def test_few_requests_are_spread_over_the_engines(pool: Pool) -> None:
    pool.pool.start()
    for seed in range(3):
        pool.submit(seed)
    pool.wait_until_all_step()
    assert [len(runner.begun) for runner in pool.runners] == [1, 1, 1]
    pool.open()
    for number in range(3):
        assert pool.whole(number)[0] == [(number,)] * 5
    pool.wait_until_idle()


def test_what_waits_is_taken_by_whichever_has_room_first(pool: Pool) -> None:
    pool.pool.start()
    for seed in range(11):
        pool.submit(seed)
    pool.wait_until_all_step()
    pool.runners[1].gate.set()
    while pool.pool.n_waiting:  # the others are still in their first step
        threading.Event().wait(0.001)
    stuck = pool.runners[0].begun + pool.runners[2].begun
    assert 2 <= len(stuck) <= 4
    for number in sorted(set(range(11)) - set(stuck)):
        assert pool.whole(number)[0] == [(number,)] * 5
    assert sorted(pool.runners[1].begun) == sorted(set(range(11)) - set(stuck))
    pool.open()
    for number in sorted(stuck):
        pool.whole(number)
    pool.wait_until_idle()


def test_a_full_queue_refuses(pool: Pool) -> None:
    for seed in range(11):
        pool.submit(seed)
    with pytest.raises(OverloadedError, match="5 requests are waiting") as caught:
        pool.submit(11)
    assert caught.value.retry_seconds > 0


def test_releases_and_cancels_find_their_notes(pool: Pool) -> None:
    handles = [pool.submit(seed, held_frames=40) for seed in range(11)]
    pool.pool.cancel(handles[2])
    pool.pool.cancel(handles[9])
    pool.pool.release(handles[4])
    pool.pool.release(handles[10])
    pool.pool.start()
    pool.open()
    lengths = [len(pool.whole(number)[0]) for number in range(11) if number not in (2, 9)]
    assert lengths == [40, 40, 40, 1, 40, 40, 40, 40, 1]
    pool.wait_until_idle()


def test_where_one_engine_dies_the_others_go_on(pool: Pool) -> None:
    pool.runners[0].failure = OSError("the device is gone")
    for seed in range(11):
        pool.submit(seed)
    pool.pool.start()
    pool.wait_until_all_step()
    pool.open()
    ends = [pool.whole(number)[1] for number in range(11)]
    failed = [number for number, end in enumerate(ends) if end.error is not None]
    assert failed == pool.runners[0].begun
    assert len(failed) == 2
    assert not pool.dead.is_set()
    pool.submit(11)
    assert pool.whole(11)[1].error is None


def test_the_slots_of_an_engine_that_died_are_not_counted() -> None:
    """The living one has two slots of the three, and takes as long for a step as it takes."""
    dying, living = NarrowRunner(), SeedRunner()
    dying.failure = OSError("the device is gone")
    pool = EnginePool([dying, living], LAYOUT, queue_capacity=5, post=hand_out, caller_share=0.75)
    heard: queue.Queue[Delivery] = queue.Queue()

    def ask(seconds_left: float | None = None) -> None:
        pool.accept(RequestHandle(NoteRequest((0.0, 0.0), 60, 100, 5, 1), heard.put), seconds_left)

    assert (pool.n_slots, pool._queue.share) == (3, 2)
    for _ in range(3):
        ask()
    pool.start()
    try:
        wait_for(lambda: (len(dying.begun), len(living.begun)) == (1, 2), "each to have its notes")
        living.gate.set()
        for _ in range(2):
            while heard.get(timeout=PATIENCE_SECONDS).finish is None:
                pass
        living.gate.clear()
        dying.gate.set()
        while heard.get(timeout=PATIENCE_SECONDS).error is None:
            pass
        wait_for(lambda: (pool.n_slots, pool._queue.share) == (2, 1), "its slots to be gone")
        for _ in range(2):
            ask()
        with pytest.raises(OverloadedError, match="its deadline leaves"):
            ask(1e-9)
    finally:
        living.gate.set()
        pool.stop()
    assert pool.n_slots == 0


def test_where_all_die_nothing_is_accepted_any_more(pool: Pool) -> None:
    for runner in pool.runners:
        runner.failure = OSError("the device is gone")
    for seed in range(11):
        pool.submit(seed)
    pool.pool.start()
    pool.open()
    assert all(isinstance(pool.whole(number)[1].error, UnavailableError) for number in range(11))
    assert pool.dead.wait(PATIENCE_SECONDS)
    with pytest.raises(UnavailableError, match="died"):
        pool.submit(11)


def test_a_stopped_pool_gives_up_what_waits(pool: Pool) -> None:
    for seed in range(11):
        pool.submit(seed)
    pool.pool.start()
    pool.open()
    pool.pool.stop()
    with pytest.raises(UnavailableError, match="shutting down"):
        pool.submit(11)
    assert pool.pool.n_occupied == 0
    assert pool.pool.n_waiting == 0


def test_callers_take_turns_whoever_came_first(pool: Pool) -> None:
    heard: queue.Queue[int] = queue.Queue()

    def ask(caller: str, seed: int) -> None:
        request = NoteRequest((0.0, 0.0), 60, 100, 3, seed)
        handle = RequestHandle(request, lambda delivery: heard.put(seed), ClientKey(caller))
        pool.pool.accept(handle)

    for seed in range(6):  # these have the slots
        pool.submit(seed)
    for seed in range(20, 25):
        ask("greedy", seed)
    ask("modest", 10)  # of the places kept for those who have less than their share
    with pytest.raises(OverloadedError):
        ask("greedy", 25)
    pool.pool.start()
    wait_for(lambda: all(len(runner.begun) == 2 for runner in pool.runners), "every slot to be taken")
    pool.runners[0].gate.set()
    for number in pool.runners[0].begun[:2]:
        pool.whole(number)
    order = [heard.get(timeout=PATIENCE_SECONDS)]
    while 24 not in order:
        seed = heard.get(timeout=PATIENCE_SECONDS)
        if seed not in order:
            order.append(seed)
    assert set(order[:2]) == {20, 10}  # in the order in which they are heard, not begun


def test_what_cannot_be_written_in_time_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where `monotonic` is so coarse, as Windows's is, that no time goes by in a step."""
    clocks = SimpleNamespace(monotonic=lambda: 0.0, perf_counter=time.perf_counter)
    monkeypatch.setattr(engine, "time", clocks)
    pool = EnginePool([NarrowRunner()], LAYOUT, queue_capacity=5, post=hand_out)
    heard: queue.Queue[Delivery] = queue.Queue()

    def ask(held_frames: int, seconds_left: float | None) -> RequestHandle:
        handle = RequestHandle(NoteRequest((0.0, 0.0), 60, 100, held_frames, 1), heard.put)
        pool.accept(handle, seconds_left)
        return handle

    runner = pool.engines[0]._runner
    assert isinstance(runner, NarrowRunner)
    runner.gate.set()
    pool.start()
    try:
        running = ask(59, None)
        while heard.get(timeout=PATIENCE_SECONDS).finish is None:
            pass
        runner.gate.clear()  # how long a step takes is known; now none ends
        ask(50, 1e-6)  # nobody is waited for: should it be too late, its deadline tells
        handles = [ask(50, None), ask(50, 1000.0)]
        with pytest.raises(OverloadedError, match="its deadline leaves") as caught:
            ask(5, 1e-9)
        assert 0 < caught.value.retry_seconds < 3600
        for handle in (running, *handles):
            pool.cancel(handle)
    finally:
        runner.gate.set()
        pool.stop()


class TestOfTwoEnginesOneWithoutNotes:
    """One has two slots, the other one. Who is greedy has its share, and asks for more in light company."""

    @pytest.fixture
    def wide(self) -> SeedRunner:
        return SeedRunner()

    @pytest.fixture
    def narrow(self) -> SeedRunner:
        return NarrowRunner()

    @pytest.fixture
    def pool(self, wide: SeedRunner, narrow: SeedRunner) -> Iterator[EnginePool]:
        made = EnginePool([wide, narrow], LAYOUT, queue_capacity=5, post=hand_out, caller_share=0.25)
        made.start()
        yield made
        for runner in (wide, narrow):
            runner.gate.set()
        made.stop()

    def ask(self, pool: EnginePool, caller: str) -> threading.Event:
        """Asks for a note; returns what is set once it is written."""
        written = threading.Event()

        def receive(delivery: Delivery) -> None:
            if delivery.finish is not None:
                written.set()

        request = NoteRequest((0.0, 0.0), 60, 100, held_frames=5, seed=1)
        pool.accept(RequestHandle(request, receive, ClientKey(caller)))
        return written

    def test_it_takes_what_waits_once_company_is_over(
        self, pool: EnginePool, wide: SeedRunner, narrow: SeedRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request_queue, "COMPANY_SECONDS", 0.2)
        self.ask(pool, "greedy")
        wait_for(lambda: wide.begun, "a step that does not end")
        pool.check_room("modest")
        narrow.gate.set()
        assert self.ask(pool, "greedy").wait(PATIENCE_SECONDS / 2), "before the step in hand fails"

    def test_it_takes_what_waits_once_another_has_written_a_note(
        self, pool: EnginePool, wide: SeedRunner, narrow: SeedRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request_queue, "COMPANY_SECONDS", 3600.0)
        monkeypatch.setattr(engine, "LOOK_SECONDS", 3600.0)
        first = self.ask(pool, "modest")
        wait_for(lambda: wide.begun, "the one with more room to begin")
        self.ask(pool, "greedy")
        wait_for(lambda: narrow.begun, "the other to begin")
        waits = self.ask(pool, "greedy")
        wide.gate.set()
        assert first.wait(PATIENCE_SECONDS)
        wait_for(lambda: pool.engines[0].n_occupied == 0, "its slots to be free")
        wait_until_blocked(pool.engines[0]._thread)
        narrow.gate.set()
        assert waits.wait(PATIENCE_SECONDS / 2)
