"""Lengths that are quick to transform."""

from __future__ import annotations

from timbrel.library.spectrum import fast_length


def largest_prime_factor(number: int) -> int:
    largest, factor = 1, 2
    while number > 1:
        while number % factor == 0:
            number, largest = number // factor, factor
        factor += 1
    return largest


def test_every_length_is_long_enough_quick_and_not_much_longer() -> None:
    for wanted in [*range(1, 3000), 110_077, 110_080, 2**17, 2**17 + 1]:
        length = fast_length(wanted)
        assert wanted <= length <= max(wanted + 1, 1.26 * wanted)
        assert largest_prime_factor(length) <= 7
