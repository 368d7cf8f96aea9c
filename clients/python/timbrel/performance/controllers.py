"""The numbers of MIDI's controllers and registered parameters, and what a channel's parameters are set to."""

from __future__ import annotations

from typing import NamedTuple

BANK, MODULATION, PORTAMENTO_TIME, DATA, VOLUME, PAN, EXPRESSION = 0, 1, 5, 6, 7, 10, 11
DATA_FINE, PEDAL, PORTAMENTO, SOSTENUTO, SOFT_PEDAL, PORTAMENTO_FROM = 38, 64, 65, 66, 67, 84
BRIGHTNESS = 74
INCREMENT, DECREMENT, NRPN_FINE, NRPN, RPN_FINE, RPN = 96, 97, 98, 99, 100, 101
ALL_SOUND_OFF, RESET_CONTROLLERS, ALL_NOTES_OFF, OMNI_OFF, MONO, POLY = 120, 121, 123, 124, 126, 127

STATE_FIELDS = {VOLUME: "volume", PAN: "pan", EXPRESSION: "expression"}
"""Those that a channel's faders follow."""

SWITCHED_ON = 64
"""Values of a pedal's or switch's controller from here on mean down, or on."""

BEND_RANGE, FINE_TUNING, COARSE_TUNING, TUNING_PROGRAM, TUNING_BANK, VIBRATO_RANGE, MPE_ZONE = range(7)
"""Registered parameters."""

_NULL = (127, 127)
FIRST = {
    **{BEND_RANGE: (2, 0), FINE_TUNING: (64, 0), COARSE_TUNING: (64, 0)},
    **{TUNING_PROGRAM: (0, 0), TUNING_BANK: (0, 0), VIBRATO_RANGE: (0, 64)},
}
"""Parameter -> its value, coarse and fine, where a file says nothing."""

UNPERFORMED = {
    **{0: "bank select", 32: "bank select", 2: "breath", 4: "foot controller", 8: "balance"},
    **{12: "effect control", 13: "effect control", 68: "legato"},
    **{69: "hold 2", 70: "sound variation", 71: "resonance", 72: "release time", 73: "attack time"},
    **{75: "decay time", 76: "vibrato rate", 77: "vibrato depth"},
    **{78: "vibrato delay", 88: "high-resolution velocity", 91: "reverb", 92: "tremolo", 93: "chorus"},
    **{94: "detune", 95: "phaser", 126: "mono mode"},
    **dict.fromkeys((33, 37, 39, 42, 43), "fine part of a controller"),
}
"""Controllers that are not performed, by name; the others not, too, but are called by their number."""

SILENT = frozenset({*range(120, 128)} - {MONO})
"""Channel modes: nothing is missed where these are not obeyed to the letter."""

_CENTRED = frozenset({8, *range(70, 80)})
"""They do nothing at 64; others at 0."""


def unperformed_name(control: int, value: int) -> str | None:
    """The name of what a listener misses in a controller's value; None where it asks for nothing."""
    if control in SILENT or value == (64 if control in _CENTRED else 0):
        return None
    return UNPERFORMED.get(control, f"controller {control}")


class Setting(NamedTuple):
    """A registered parameter, and its value."""

    parameter: int
    coarse: int
    fine: int


class Parameters:
    """A channel's registered parameters (RPN): which is selected, and what they are set to."""

    def __init__(self) -> None:
        self._values = dict(FIRST)
        self._selected = _NULL
        self._is_registered = False

    def put(self, parameter: int, coarse: int, fine: int = 0) -> None:
        """Sets a value that did not come as data."""
        self._values[parameter] = (coarse, fine)

    def take(self, control: int, value: int) -> Setting | str | None:
        """Takes one of the controllers that parameters are selected and set by.

        Returns the parameter that was set; or a name, where the value is of no parameter known here.
        """
        if control in (NRPN, NRPN_FINE, RPN, RPN_FINE):
            registered = control in (RPN, RPN_FINE)
            coarse, fine = self._selected if registered == self._is_registered else _NULL
            self._selected = (value, fine) if control in (RPN, NRPN) else (coarse, value)
            self._is_registered = registered
            return None
        if 127 in self._selected:
            return None  # nothing is selected, or half of it
        if not self._is_registered:
            return "non-registered parameter (NRPN)"
        bank, parameter = self._selected
        if bank or parameter > MPE_ZONE:
            return f"registered parameter {bank << 7 | parameter}"
        self._values[parameter] = self._changed(parameter, control, value)
        return Setting(parameter, *self._values[parameter])

    def _changed(self, parameter: int, control: int, value: int) -> tuple[int, int]:
        coarse, fine = self._values.get(parameter, (0, 0))
        if control == DATA:
            return value, 0
        if control == DATA_FINE:
            return coarse, value
        step = 1 if control == INCREMENT else -1
        if parameter in (COARSE_TUNING, TUNING_PROGRAM, TUNING_BANK, MPE_ZONE):
            return min(max(coarse + step, 0), 127), fine
        base = 100 if parameter == BEND_RANGE else 128  # the fine part of a bend's range counts cents
        total = min(max(coarse * base + fine + step, 0), 127 * base + base - 1)
        return divmod(total, base)
