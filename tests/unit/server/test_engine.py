"""The engine over a runner that counts: frame t of a note reads (seed + t) % 10 in every codebook."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
from waiting import wait_for

from timbrel_server.engine import delivery as engine_delivery
from timbrel_server.engine import engine as engine_module
from timbrel_server.engine.engine_pool import EnginePool
from timbrel_server.engine.progress import TokenLayout
from timbrel_server.engine.request import ClientKey, Delivery, Finish, Frame, NoteRequest, RequestHandle
from timbrel_server.engine.scheduler import FrameClock
from timbrel_server.engine.slots import StepInput
from timbrel_server.errors import OverloadedError, UnavailableError

SIZE, BOS, EOS = 10, 10, 11
N_CODEBOOKS = 3
LAYOUT = TokenLayout(N_CODEBOOKS, BOS, EOS, max_frames=60)
PATIENCE_SECONDS = 30.0


class CountingRunner:
    """Ends each note one frame after its key is released. Steps only while `gate` is set; fails on demand."""

    buckets: Sequence[int] = (1, 2, 4)
    can_move = True

    def __init__(self) -> None:
        self.seeds = [0] * 4  # by row
        self.steps: list[list[int]] = []  # rows of each step
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.during: dict[int, Callable[[], object]] = {}  # number of a step -> what happens while it runs

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def admit(self, notes: Sequence[tuple[int, NoteRequest]]) -> None:
        for row, request in notes:
            self.seeds[row] = request.seed

    def move(self, source: int, target: int) -> None:
        self.seeds[target] = self.seeds[source]

    def step(self, given: StepInput) -> npt.NDArray[np.int64]:
        assert self.gate.wait(PATIENCE_SECONDS)
        if self.failure is not None:
            raise self.failure
        self.during.get(len(self.steps), lambda: None)()
        self.steps.append(given.active.nonzero()[0].tolist())
        seeds = np.array(self.seeds[: len(given.positions)])
        drawn = ((seeds + given.positions)[:, None] - np.arange(N_CODEBOOKS)) % SIZE
        drawn[given.gate == 0, 0] = EOS
        return drawn


class Listener:
    """Gathers a note's deliveries."""

    def __init__(self) -> None:
        self._deliveries: queue.Queue[Delivery] = queue.Queue()
        self.receive = self._deliveries.put

    def next(self) -> Delivery:
        return self._deliveries.get(timeout=PATIENCE_SECONDS)

    def taken(self) -> list[Delivery]:
        """All that has come by now."""
        return [self._deliveries.get_nowait() for _ in range(self._deliveries.qsize())]

    def whole(self) -> tuple[list[Frame], Delivery]:
        """Every frame, and the last delivery."""
        frames: list[Frame] = []
        while True:
            delivery = self.next()
            frames += delivery.frames
            if delivery.finish is not None or delivery.error is not None:
                return frames, delivery


def hand_out(deliveries: Sequence[tuple[RequestHandle, Delivery]]) -> None:
    for handle, delivery in deliveries:
        handle.receive(delivery)


def request(seed: int, held_frames: int = 10) -> NoteRequest:
    return NoteRequest((0.0, 0.0), 60, 100, held_frames, seed)


def expected(seed: int, n_frames: int) -> list[Frame]:
    return [((seed + t) % SIZE,) * N_CODEBOOKS for t in range(n_frames)]


class Engine(EnginePool):
    """The only engine of a pool."""

    def __init__(
        self,
        runner: CountingRunner,
        queue_capacity: int,
        post: Callable[[Sequence[tuple[RequestHandle, Delivery]]], None] = hand_out,
        on_death: Callable[[], None] = lambda: None,
        frame_clock: FrameClock | None = None,
    ) -> None:
        super().__init__([runner], LAYOUT, queue_capacity, post, on_death, frame_clock=frame_clock)

    def submit(self, request: NoteRequest, receive: Callable[[Delivery], None]) -> RequestHandle:
        handle = RequestHandle(request, receive)
        self.accept(handle)
        return handle

    def step(self) -> None:
        """Takes a step by hand."""
        [engine] = self.engines
        engine.step()


@pytest.fixture
def runner() -> CountingRunner:
    return CountingRunner()


@pytest.fixture
def engine(runner: CountingRunner) -> Iterator[Engine]:
    made = Engine(runner, 4)
    made.start()
    yield made
    runner.gate.set()
    made.stop()


def test_the_runner_warms_up_on_the_engines_thread_before_it_is_started(runner: CountingRunner) -> None:
    threads: list[threading.Thread] = []
    runner.warm_up = lambda: threads.append(threading.current_thread())  # type: ignore[method-assign]
    made = Engine(runner, 4)
    made.start()
    [engine] = made.engines
    assert threads == [engine._thread]
    made.stop()


def test_what_a_runner_cannot_warm_up_for_is_told_by_start(runner: CountingRunner) -> None:
    def fail() -> None:
        raise RuntimeError("no graph can be captured")

    runner.warm_up = fail  # type: ignore[method-assign]
    made = Engine(runner, 4)
    with pytest.raises(RuntimeError, match="no graph can be captured"):
        made.start()
    assert not made.is_accepting


def wait_until_idle(engine: Engine) -> None:
    """The slot of a note is freed by the step after its last."""
    wait_for(
        lambda: engine.n_occupied == engine.n_waiting == 0,
        "every slot to be free",
        seen=lambda: f"{engine.n_occupied} in use, {engine.n_waiting} requests wait",
    )


def test_writes_a_note(engine: Engine) -> None:
    listener = Listener()
    engine.submit(request(seed=3), listener.receive)
    frames, last = listener.whole()
    assert frames == expected(3, 10)
    assert last.finish is Finish.EOS
    wait_until_idle(engine)


def test_cuts_a_note_at_the_cap(engine: Engine) -> None:
    listener = Listener()
    engine.submit(request(seed=1, held_frames=1000), listener.receive)
    frames, last = listener.whole()
    assert frames == expected(1, 60)
    assert last.finish is Finish.CAP


def test_notes_of_any_length_keep_to_themselves_in_company(engine: Engine) -> None:
    for round_ in range(10):
        listeners = [Listener() for _ in range(4)]
        for seed, listener in enumerate(listeners):
            engine.submit(request(seed, held_frames=1 + (seed * 7 + round_) % 13), listener.receive)
        for seed, listener in enumerate(listeners):
            frames, _ = listener.whole()
            assert frames == expected(seed, 1 + (seed * 7 + round_) % 13)
    wait_until_idle(engine)


def test_a_machine_that_stood_still_amid_a_step_is_not_taken_for_a_slow_one(
    runner: CountingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def let_pass(seconds: float) -> None:
        nonlocal now
        now += seconds

    # Sixty steps of 10 ms, a minute of standing still, and then steps of 100 ms.
    for number in range(200):
        runner.during[number] = partial(let_pass, 0.01 if number < 60 else 60.0 if number == 60 else 0.1)
    monkeypatch.setattr(
        engine_module, "time", SimpleNamespace(perf_counter=lambda: now, monotonic=lambda: now)
    )
    engine = Engine(runner, 4)
    [its] = engine.engines
    seen = {}
    for seed in range(4):
        engine.submit(request(seed, held_frames=40), Listener().receive)
        while engine.n_occupied or engine.n_waiting:
            engine.step()
            seen[len(runner.steps)] = its.step_seconds
    assert seen[60] == pytest.approx(0.01, rel=0.05)
    assert seen[61] < 0.02
    assert seen[max(seen)] == pytest.approx(0.1, rel=0.05), "a machine that has become slow is one"


def test_a_request_joins_between_steps(engine: Engine, runner: CountingRunner) -> None:
    first, second = Listener(), Listener()
    runner.during[4] = lambda: engine.submit(request(seed=2, held_frames=2), second.receive)
    engine.submit(request(seed=1, held_frames=10), first.receive)
    assert second.whole()[0] == expected(2, 2)
    assert first.whole()[0] == expected(1, 10)
    assert [len(rows) for rows in runner.steps] == [1] * 5 + [2] * 4 + [1] * 3


def test_the_key_can_go_up_while_a_note_sounds(engine: Engine, runner: CountingRunner) -> None:
    listener = Listener()
    handles: list[RequestHandle] = []
    runner.during[4] = lambda: engine.release(handles[0])
    runner.gate.clear()
    handles.append(engine.submit(request(seed=1, held_frames=50), listener.receive))
    runner.gate.set()
    assert listener.whole()[0] == expected(1, 5)  # frame 4 was being written
    assert handles[0].held_frames == 5
    engine.release(handles[0])
    wait_until_idle(engine)


def test_a_key_that_goes_up_before_its_note_has_a_slot(engine: Engine, runner: CountingRunner) -> None:
    runner.gate.clear()
    listeners = [Listener() for _ in range(4)]
    handles = [engine.submit(request(seed, 30), each.receive) for seed, each in enumerate(listeners)]
    engine.release(handles[3])
    runner.gate.set()
    assert [len(listener.whole()[0]) for listener in listeners] == [30, 30, 30, 1]


def test_waiting_requests_get_their_slots_in_the_order_they_came(
    engine: Engine, runner: CountingRunner
) -> None:
    begun: list[int] = []
    admit = runner.admit

    def note_who_begins(notes: Sequence[tuple[int, NoteRequest]]) -> None:
        begun.extend(sorted(note.seed for _, note in notes))  # with one step: none of them before another
        admit(notes)

    runner.admit = note_who_begins  # type: ignore[method-assign]
    listeners: list[Listener] = []
    for seed in range(40):
        listeners.append(Listener())
        while True:
            try:
                engine.submit(request(seed, held_frames=1 if seed % 2 else 40), listeners[-1].receive)
                break
            except OverloadedError:
                threading.Event().wait(0.001)
    for listener in listeners:
        listener.whole()
    assert begun == list(range(40))


class Clock:
    """Real time, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class LiveEngine:
    """An engine whose steps are taken by hand, at ten frames a second of a clock moved by hand."""

    def __init__(self, runner: CountingRunner) -> None:
        self.clock = Clock()
        self.engine = Engine(runner, 4, frame_clock=FrameClock(10.0, self.clock))

    def play(self, listener: Listener, seed: int, frames_ahead: int | None = None) -> RequestHandle:
        wanted = NoteRequest((0.0, 0.0), 60, 100, held_frames=50, seed=seed, frames_ahead=frames_ahead)
        return self.engine.submit(wanted, listener.receive)

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.engine.step()


def test_a_live_note_keeps_to_real_time_until_its_key_is_up(runner: CountingRunner) -> None:
    live, listener = LiveEngine(runner), Listener()
    handle = live.play(listener, seed=3, frames_ahead=4)
    live.steps(20)
    assert len(runner.steps) == 4
    live.clock.now += 0.3
    live.steps(20)
    assert len(runner.steps) == 7
    live.engine.release(handle)
    live.steps(20)
    frames, last = listener.whole()
    assert (frames, last.finish) == (expected(3, 7), Finish.EOS)
    assert handle.held_frames == 7


def test_live_notes_move_on_in_the_same_steps(runner: CountingRunner) -> None:
    live, listeners = LiveEngine(runner), [Listener() for _ in range(3)]
    for seed, listener in enumerate(listeners):
        live.clock.now += 0.033
        live.play(listener, seed, frames_ahead=2)
        live.steps(5)
    runner.steps.clear()
    for _ in range(10):
        live.clock.now += 0.1
        live.steps(5)
    assert runner.steps == [[0, 1, 2]] * 10


def test_a_live_note_is_the_same_in_hurried_company(runner: CountingRunner) -> None:
    live, slow, fast = LiveEngine(runner), Listener(), Listener()
    handle = live.play(slow, seed=1, frames_ahead=2)
    live.play(fast, seed=2)
    live.steps(60)
    assert fast.whole()[0] == expected(2, 50)
    live.clock.now += 0.5
    live.steps(5)
    live.engine.release(handle)
    live.steps(10)
    assert slow.whole()[0] == expected(1, 7)
    assert live.engine.n_occupied == 0


def test_a_thread_that_waits_for_a_tick_hears_the_release(runner: CountingRunner) -> None:
    engine = Engine(runner, 4, frame_clock=FrameClock(0.01))
    engine.start()
    listener = Listener()
    held = NoteRequest((0.0, 0.0), 60, 100, held_frames=50, seed=1, frames_ahead=3)
    handle = engine.submit(held, listener.receive)
    listener.next()  # frame 0 is complete: three steps have been taken, and the next tick is 100 s away
    engine.release(handle)
    assert len(listener.whole()[0]) == 2
    engine.stop()


def test_a_note_comes_in_one_delivery_where_it_is_wanted_whole(engine: Engine) -> None:
    listener = Listener()
    engine.accept(RequestHandle(request(1), listener.receive, whole=True))
    delivery = listener.next()
    assert delivery.frames == expected(1, 10)
    assert delivery.finish is Finish.EOS


def test_a_note_that_had_to_queue_comes_in_fewer_pieces(
    runner: CountingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_delivery, "LONGEST_HOLD_SECONDS", 0.0)
    clock = Clock()  # stands: no frame gets old meanwhile
    monkeypatch.setattr(engine_module, "time", SimpleNamespace(monotonic=clock, perf_counter=clock))
    engine = Engine(runner, 8)

    def sizes(waited_seconds: float) -> list[int]:
        found: list[int] = []
        handle = RequestHandle(
            request(1, held_frames=58), lambda delivery: found.append(len(delivery.frames))
        )
        handle.submitted = clock() - waited_seconds
        engine.accept(handle)
        while sum(found) < 58:
            engine.step()
        return found

    assert sizes(0.0) == [1, 3, 9, 27, 18]
    assert sizes(1.0) == [1, 57]


def test_after_the_first_frame_replies_wait_for_each_other_and_none_is_left(
    runner: CountingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_delivery, "LONGEST_HOLD_SECONDS", 3600.0)
    posts: list[list[tuple[int, int, Finish | None]]] = []

    def post(deliveries: Sequence[tuple[RequestHandle, Delivery]]) -> None:
        posts.append([(t.request.seed, len(each.frames), each.finish) for t, each in deliveries])

    engine = Engine(runner, 8, post)
    engine.submit(request(1, held_frames=10), lambda _: None)
    engine.step()
    engine.submit(request(2, held_frames=20), lambda _: None)
    for _ in range(40):
        engine.step()
    assert posts == [[(1, 1, None)], [(2, 1, None)], [(1, 9, Finish.EOS), (2, 19, Finish.EOS)]]


def test_the_end_of_all_that_a_caller_has_in_hand_waits_for_nobody(
    runner: CountingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_delivery, "LONGEST_HOLD_SECONDS", 3600.0)
    ended: list[list[int]] = []

    def post(deliveries: Sequence[tuple[RequestHandle, Delivery]]) -> None:
        if seeds := [t.request.seed for t, each in deliveries if each.finish is not None]:
            ended.append(seeds)

    engine = Engine(runner, 8, post)
    for seed, caller, held_frames in ((1, "ann", 3), (2, "bob", 6), (3, "bob", 9), (4, "ann", 40)):
        key = ClientKey(caller)
        engine.accept(RequestHandle(request(seed, held_frames), lambda _: None, key))
    for _ in range(5):
        engine.step()
    assert ended == []  # ann's next note is being written
    for _ in range(15):
        engine.step()
    assert ended == [[1, 2, 3]]  # with bob's last
    for _ in range(30):
        engine.step()
    assert ended == [[1, 2, 3], [4]]


class ScriptedClock(FrameClock):
    """Does one thing after the other as the engine looks at it."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.script: list[Callable[[], object]] = []

    @property
    def tick(self) -> int:
        if self.script:
            self.script.pop(0)()
        return 0


def test_what_waits_goes_out_though_the_work_that_it_waited_for_is_given_up(
    runner: CountingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_delivery, "LONGEST_HOLD_SECONDS", 3600.0)
    clock, listener, bob = ScriptedClock(), Listener(), ClientKey("bob")
    engine = Engine(runner, 8, frame_clock=clock)
    given_up = RequestHandle(request(2, held_frames=40), lambda _: None, bob)
    another = RequestHandle(request(3), lambda _: None, ClientKey("ann"))
    engine.accept(RequestHandle(request(1, held_frames=3), listener.receive, bob))
    engine.accept(given_up)

    def as_the_first_note_ends() -> None:
        """The other one is given up; later one more comes, amid a step that has nothing to do, and goes."""
        engine.cancel(given_up)
        no, accept, cancel = object, (lambda: engine.accept(another)), (lambda: engine.cancel(another))
        clock.script = [no, no, no, accept, cancel]

    runner.during[4] = as_the_first_note_ends
    engine.start()
    try:
        frames, last = listener.whole()
        assert frames == expected(1, 3) and last.finish is Finish.EOS and not clock.script
    finally:
        engine.stop()


def test_what_waits_when_the_engine_dies_goes_out_before_the_error(
    runner: CountingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_delivery, "LONGEST_HOLD_SECONDS", 3600.0)
    engine = Engine(runner, 8)
    finished, running = Listener(), Listener()
    engine.submit(request(1, held_frames=5), finished.receive)
    engine.submit(request(2, held_frames=50), running.receive)
    for _ in range(20):
        engine.step()
    engine.fail("it has stalled")
    assert finished.whole()[0] == expected(1, 5)
    frames, last = running.whole()
    assert len(frames) > 5 and frames == expected(2, len(frames))
    assert isinstance(last.error, UnavailableError)


def test_what_waits_of_a_cancelled_note_is_dropped(
    runner: CountingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_delivery, "LONGEST_HOLD_SECONDS", 3600.0)
    engine = Engine(runner, 8)
    listener, other = Listener(), Listener()
    handle = engine.submit(request(1, held_frames=50), listener.receive)
    engine.submit(request(2, held_frames=50), other.receive)
    for _ in range(20):
        engine.step()
    engine.cancel(handle)
    for _ in range(60):
        engine.step()
    assert other.whole()[0] == expected(2, 50)
    assert [delivery.frames for delivery in listener.taken()] == [expected(1, 1)]


def test_cancelling_frees_the_slot_and_nothing_more_comes(engine: Engine, runner: CountingRunner) -> None:
    runner.gate.clear()
    listeners = [Listener() for _ in range(4)]
    handles = [engine.submit(request(seed), each.receive) for seed, each in enumerate(listeners)]
    for handle in handles[:3]:
        engine.cancel(handle)
    runner.gate.set()
    assert listeners[3].whole()[0] == expected(3, 10)
    wait_until_idle(engine)
    assert all(len(rows) == 1 for rows in runner.steps[1:])


def test_a_full_queue_refuses_and_says_when_to_come_back(engine: Engine, runner: CountingRunner) -> None:
    runner.gate.clear()
    listener = Listener()
    with pytest.raises(OverloadedError) as caught:
        for seed in range(20):
            engine.submit(request(seed), listener.receive)
    assert 0 < caught.value.retry_seconds < 60


def test_an_engine_that_dies_fails_its_requests_and_says_so(runner: CountingRunner) -> None:
    dead = threading.Event()
    engine = Engine(runner, 8, on_death=dead.set)
    runner.gate.clear()
    runner.failure = OSError("the device is gone")
    engine.start()
    listeners = [Listener() for _ in range(6)]
    for seed, listener in enumerate(listeners):
        engine.submit(request(seed), listener.receive)
    runner.gate.set()
    for listener in listeners:
        assert isinstance(listener.whole()[1].error, UnavailableError)
    assert dead.wait(PATIENCE_SECONDS)
    assert engine.steps_in_progress == [None], "the watchdog would say that it has stalled as well"
    with pytest.raises(UnavailableError, match="died"):
        engine.submit(request(0), listeners[0].receive)
    engine.stop()


def test_a_stopped_engine_gives_up_what_it_has(runner: CountingRunner) -> None:
    engine = Engine(runner, 8)
    engine.start()
    runner.gate.clear()
    listener = Listener()
    engine.submit(request(0), listener.receive)

    def go_on_once_it_ends() -> None:
        wait_for(lambda: not engine.is_accepting, "the engine to be told to end")
        runner.gate.set()

    threading.Thread(target=go_on_once_it_ends).start()
    engine.stop()
    assert isinstance(listener.whole()[1].error, UnavailableError)
    with pytest.raises(UnavailableError, match="shutting down"):
        engine.submit(request(0), listener.receive)
    assert engine.n_occupied == 0
