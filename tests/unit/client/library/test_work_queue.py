"""Work shared by several takers: nothing is lost, nothing is handed out twice, nobody waits for ever."""

from __future__ import annotations

import random
import threading

from waiting import wait_for, wait_until_blocked

from timbrel.library.render.work_queue import Lease, WorkQueue


def orders(count: int) -> list[tuple[str, int]]:
    return [(f"note {number}", number) for number in range(count)]


def test_orders_come_from_the_front_and_end_once_all_are_answered() -> None:
    queue = WorkQueue(orders(3), max_out=10)
    taken = []
    lease = Lease(queue)
    for name, order in lease:
        taken.append(order)
        lease.complete(name)
        queue.task_done()
    assert taken == [0, 1, 2] and queue.is_finished()


def test_what_one_gives_back_another_takes() -> None:
    queue = WorkQueue(orders(4), max_out=10)
    first, second = Lease(queue), Lease(queue)
    held = iter(first)
    assert [next(held)[1], next(held)[1]] == [0, 1]
    waiting = iter(second)
    assert next(waiting)[1] == 2
    first.close()
    assert next(held, None) is None, "a closed lease takes no more"
    assert sorted([next(waiting)[1], next(waiting)[1], next(waiting)[1]]) == [0, 1, 3]
    assert not queue.is_finished()


def test_who_has_nothing_to_take_waits_for_what_others_may_give_back() -> None:
    queue = WorkQueue(orders(1), max_out=10)
    first, second = Lease(queue), Lease(queue)
    next(iter(first))
    came: list[int] = []
    thread = threading.Thread(target=lambda: came.extend(order for _, order in second))
    thread.start()
    wait_until_blocked(thread)
    assert thread.is_alive() and came == []
    first.close()
    wait_for(lambda: came == [0], "what the first gave back", seen=lambda: came)
    second.complete("note 0")
    queue.task_done()
    thread.join(60)
    assert came == [0] and not thread.is_alive()


def test_no_more_is_out_than_may_be() -> None:
    queue = WorkQueue(orders(5), max_out=2)
    lease = Lease(queue)
    taking = iter(lease)
    names = [next(taking)[0], next(taking)[0]]
    thread = threading.Thread(target=lambda: names.append(next(taking)[0]))
    thread.start()
    wait_until_blocked(thread)
    assert len(names) == 2
    lease.complete(names[0])
    queue.task_done()
    thread.join(60)
    assert names[2] == "note 2"
    queue.stop()


def test_a_probing_lease_takes_one_until_it_is_answered() -> None:
    queue = WorkQueue(orders(3), max_out=10)
    lease = Lease(queue, probing=True)
    taking = iter(lease)
    name, _ = next(taking)
    came: list[int] = []
    thread = threading.Thread(target=lambda: came.append(next(taking)[1]))
    thread.start()
    wait_until_blocked(thread)
    assert came == []
    lease.complete(name)
    thread.join(60)
    assert came == [1] and next(taking)[1] == 2
    queue.stop()


def test_stopping_ends_all_who_wait() -> None:
    queue = WorkQueue(orders(1), max_out=10)
    first, second = Lease(queue), Lease(queue)
    next(iter(first))
    thread = threading.Thread(target=lambda: list(second))
    thread.start()
    assert not queue.wait(0.01)
    queue.stop()
    thread.join(60)
    assert not thread.is_alive() and queue.wait(10.0)


def test_many_takers_that_fail_at_random_answer_everything_once() -> None:
    queue = WorkQueue(orders(500), max_out=40)
    answered: list[int] = []
    lock = threading.Lock()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        while not queue.is_finished():
            lease = Lease(queue, probing=chance.random() < 0.3)
            for name, order in lease:
                if chance.random() < 0.05:
                    break
                lease.complete(name)
                with lock:
                    answered.append(order)
                queue.task_done()
            lease.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answered) == list(range(500))
