"""Work shared by several takers: nothing is lost, nothing is handed out twice, nobody waits for ever."""

from __future__ import annotations

import random
import threading

from waiting import wait_for, wait_until_blocked

from timbrel.library.pile import Pile, Share


def orders(count: int) -> list[tuple[str, int]]:
    return [(f"note {number}", number) for number in range(count)]


def test_orders_come_from_the_front_and_end_once_all_are_answered() -> None:
    pile = Pile(orders(3), most_out=10)
    taken = []
    share = Share(pile)
    for name, order in share:
        taken.append(order)
        share.answered(name)
        pile.settled()
    assert taken == [0, 1, 2] and pile.is_finished()


def test_what_one_gives_back_another_takes() -> None:
    pile = Pile(orders(4), most_out=10)
    first, second = Share(pile), Share(pile)
    held = iter(first)
    assert [next(held)[1], next(held)[1]] == [0, 1]
    waiting = iter(second)
    assert next(waiting)[1] == 2
    first.close()
    assert next(held, None) is None, "a closed share takes no more"
    assert sorted([next(waiting)[1], next(waiting)[1], next(waiting)[1]]) == [0, 1, 3]
    assert not pile.is_finished()


def test_who_has_nothing_to_take_waits_for_what_others_may_give_back() -> None:
    pile = Pile(orders(1), most_out=10)
    first, second = Share(pile), Share(pile)
    next(iter(first))
    came: list[int] = []
    thread = threading.Thread(target=lambda: came.extend(order for _, order in second))
    thread.start()
    wait_until_blocked(thread)
    assert thread.is_alive() and came == []
    first.close()
    wait_for(lambda: came == [0], "what the first gave back", seen=lambda: came)
    second.answered("note 0")
    pile.settled()
    thread.join(5)
    assert came == [0] and not thread.is_alive()


def test_no_more_is_out_than_may_be() -> None:
    pile = Pile(orders(5), most_out=2)
    share = Share(pile)
    taking = iter(share)
    names = [next(taking)[0], next(taking)[0]]
    thread = threading.Thread(target=lambda: names.append(next(taking)[0]))
    thread.start()
    wait_until_blocked(thread)
    assert len(names) == 2
    share.answered(names[0])
    pile.settled()
    thread.join(5)
    assert names[2] == "note 2"
    pile.stop()


def test_a_cautious_share_takes_one_until_it_is_answered() -> None:
    pile = Pile(orders(3), most_out=10)
    share = Share(pile, cautious=True)
    taking = iter(share)
    name, _ = next(taking)
    came: list[int] = []
    thread = threading.Thread(target=lambda: came.append(next(taking)[1]))
    thread.start()
    wait_until_blocked(thread)
    assert came == []
    share.answered(name)
    thread.join(5)
    assert came == [1] and next(taking)[1] == 2
    pile.stop()


def test_stopping_ends_all_who_wait() -> None:
    pile = Pile(orders(1), most_out=10)
    first, second = Share(pile), Share(pile)
    next(iter(first))
    thread = threading.Thread(target=lambda: list(second))
    thread.start()
    assert not pile.rest(0.01)
    pile.stop()
    thread.join(5)
    assert not thread.is_alive() and pile.rest(10.0)


def test_many_takers_that_fail_at_random_answer_everything_once() -> None:
    pile = Pile(orders(500), most_out=40)
    answered: list[int] = []
    lock = threading.Lock()

    def work(seed: int) -> None:
        chance = random.Random(seed)
        while not pile.is_finished():
            share = Share(pile, cautious=chance.random() < 0.3)
            for name, order in share:
                if chance.random() < 0.05:
                    break
                share.answered(name)
                with lock:
                    answered.append(order)
                pile.settled()
            share.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(answered) == list(range(500))
