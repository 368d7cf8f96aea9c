"""The synthetic instruments: what each is made of, and the ranges that its members' settings lie in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Range = tuple[float, float]


@dataclass(frozen=True)
class Modes:
    """Something struck or plucked: modes that ring, each for its own time."""

    family: str
    ratios: tuple[float, ...] = ()
    """Frequencies over the pitch's; none: those of a string."""
    body: tuple[tuple[float, float, float], ...] = ()
    """Resonances of what radiates the sound: hertz, width in octaves, dB."""
    stiffness: Range = (0.0, 0.0)  # of a string: mode n lies at n * sqrt(1 + stiffness * n^2)
    position: Range = (0.0, 0.0)  # where a string is plucked, as a share of its length; 0: everywhere
    slope: Range = (1.0, 1.5)  # levels fall with the mode's ratio to this power, played hardest
    touch: Range = (0.6, 1.2)  # and to this much more, played softest
    ring: Range = (0.5, 1.5)  # time constant of the lowest mode at C4, in seconds
    damping: Range = (0.5, 1.0)  # which falls with the ratio to this power
    detune: Range = (0.0, 0.0)  # cents between two strings that sound as one
    tremolo: Range = (0.0, 0.0)  # depth, at 5 Hz
    knock: Range = (0.0, 0.1)  # level of the noise of the strike
    attack: Range = (0.001, 0.003)  # seconds
    release: Range = (0.04, 0.1)  # time constant in seconds, once the key is let go


@dataclass(frozen=True)
class Waves:
    """Something blown, bowed or electronic: harmonics that last, voices that beat, and breath."""

    family: str
    drawbars: tuple[int, ...] = ()
    """The only harmonics, each at a level of its member's own; the first one is full."""
    formants: tuple[tuple[float, float, float], ...] = ()
    """Resonances: hertz, width in octaves, dB."""
    slope: Range = (1.0, 1.3)  # levels fall with the harmonic's number to this power, played hardest
    touch: Range = (0.4, 0.9)  # and to this much more, played softest
    even: Range = (1.0, 1.0)  # level of the even harmonics
    width: Range = (0.0, 0.0)  # of a pulse; 0: none
    sweep: Range = (0.2, 0.6)  # how much steeper the slope is once `settling` is over
    settling: Range = (0.1, 0.4)  # time constant in seconds
    detune: Range = (0.0, 0.0)  # cents from the middle voice to the outermost
    voices: int = 1
    vibrato: Range = (0.0, 0.0)  # cents
    noise: Range = (0.0, 0.005)  # level beside the tone
    attack: Range = (0.01, 0.03)  # seconds
    sustain: Range = (0.7, 1.0)  # level that the sound settles at
    release: Range = (0.03, 0.1)  # time constant in seconds


@dataclass(frozen=True)
class Fm:
    """Frequency modulation: carriers at `carriers` times the pitch, each with a modulator beside it."""

    family: str
    carriers: tuple[float, ...] = (1.0,)
    modulators: tuple[float, ...] = (1.0,)
    index: Range = (1.0, 3.0)  # of the modulation, played hardest at the attack
    settled: Range = (0.2, 0.5)  # share of the index that stays
    settling: Range = (0.1, 0.5)  # time constant in seconds
    second: Range = (0.2, 0.6)  # level of the other carriers
    ring: Range = (1e3, 1e3)  # time constant at C4 in seconds
    attack: Range = (0.002, 0.005)  # seconds
    release: Range = (0.05, 0.15)  # time constant in seconds


GUITAR_BODY = ((105.0, 0.4, 8.0), (210.0, 0.3, 7.0), (420.0, 0.5, 4.0), (2_500.0, 1.0, 3.0))
VIOLIN_BODY = ((280.0, 0.3, 7.0), (470.0, 0.3, 8.0), (1_000.0, 0.5, 5.0), (2_600.0, 0.9, 8.0))
SOUNDBOARD = ((180.0, 0.5, 5.0), (900.0, 0.8, 4.0))


def _voice(*formants: float) -> Waves:
    """A singing voice with these formants in hertz."""
    peaks = tuple((hertz, 0.3, level) for hertz, level in zip(formants, (24.0, 20.0, 14.0), strict=False))
    return Waves("Ensemble", formants=peaks, slope=(1.2, 1.6), vibrato=(2.0, 8.0), noise=(0.003, 0.03),
                 attack=(0.04, 0.12), voices=3, detune=(0.5, 2.0), release=(0.06, 0.15))  # fmt: skip


# fmt: off
INSTRUMENTS: Mapping[str, Modes | Waves | Fm] = {
    "Nylon String": Modes("Guitar", body=GUITAR_BODY, position=(0.12, 0.3), ring=(0.5, 1.2),
        slope=(1.2, 1.8)),
    "Steel String": Modes("Guitar", body=GUITAR_BODY, position=(0.08, 0.2), stiffness=(2e-5, 2e-4),
        ring=(1.0, 2.5), slope=(0.7, 1.1), damping=(0.4, 0.7)),
    "Electric String": Modes("Guitar", position=(0.1, 0.3), stiffness=(0.0, 1e-4), ring=(1.5, 3.0),
        slope=(0.9, 1.5)),
    "Muted String": Modes("Guitar", body=GUITAR_BODY, position=(0.1, 0.3), ring=(0.05, 0.15),
        knock=(0.1, 0.4)),
    "Harp String": Modes("Strings", body=SOUNDBOARD, position=(0.3, 0.5), ring=(0.7, 1.6),
        slope=(1.5, 2.2), release=(0.3, 0.8)),
    "Plectrum String": Modes("Piano", position=(0.04, 0.12), stiffness=(1e-5, 1e-4), slope=(0.3, 0.7),
        touch=(0.1, 0.3), ring=(0.5, 1.2), damping=(0.3, 0.6)),
    "Hammered Strings": Modes("Chromatic Percussion", body=SOUNDBOARD, position=(0.1, 0.2),
        detune=(0.5, 3.0), stiffness=(1e-4, 4e-4), ring=(0.6, 1.8), release=(0.2, 0.6)),
    "Piano String": Modes("Piano", position=(0.1, 0.14), stiffness=(1e-4, 6e-4), slope=(1.1, 1.6),
        touch=(0.8, 1.6), ring=(1.2, 2.5), damping=(0.5, 0.8), detune=(0.2, 1.0), knock=(0.05, 0.2)),
    "Finger Bass": Modes("Bass", slope=(1.4, 2.2), position=(0.1, 0.4), stiffness=(0.0, 1e-4),
        ring=(0.8, 2.0)),
    "Slapped String": Modes("Bass", slope=(0.7, 1.1), knock=(0.1, 0.4), position=(0.1, 0.4),
        stiffness=(0.0, 1e-4), ring=(0.8, 2.0)),
    "Wooden Bars": Modes("Chromatic Percussion", (1.0, 4.0, 9.2, 16.2), ring=(0.15, 0.4), knock=(0.05, 0.3),
        release=(0.2, 0.4), slope=(0.6, 1.2), touch=(0.5, 1.5)),
    "Metal Bars": Modes("Chromatic Percussion", (1.0, 4.0, 10.0, 18.1), ring=(1.0, 2.5), tremolo=(0.0, 0.3),
        damping=(0.6, 1.2), slope=(0.6, 1.2), touch=(0.5, 1.5)),
    "Thumb Piano": Modes("Ethnic", (1.0, 6.27, 17.55), slope=(0.8, 1.4), ring=(0.4, 0.9), damping=(0.6, 1.0),
        knock=(0.1, 0.3)),
    "Glass Bowls": Modes("Chromatic Percussion", (1.0, 2.32, 4.25, 6.63, 9.38), ring=(1.0, 3.0),
        slope=(1.2, 1.8), detune=(0.5, 2.0), release=(0.4, 1.0)),
    "Carillon Bell": Modes("Chromatic Percussion", (1.0, 2.0, 2.4, 3.0, 4.0, 5.0, 5.33, 6.0, 8.0),
        ring=(2.0, 4.0), slope=(0.6, 1.0), damping=(0.6, 1.0), detune=(0.3, 1.5), release=(0.8, 1.5)),
    "Handbell": Modes("Chromatic Percussion", (1.0, 3.0, 5.1, 7.4), ring=(1.2, 2.5), detune=(0.2, 1.0),
        release=(0.1, 0.3), slope=(0.6, 1.2), touch=(0.5, 1.5)),
    "Tuned Membrane": Modes("Percussive", (1.0, 2.0, 3.01, 4.02, 4.06, 5.03), ring=(0.15, 0.5),
        knock=(0.2, 0.6), slope=(0.6, 1.2), touch=(0.5, 1.5)),
    "Steel Pan": Modes("Percussive", (1.0, 2.0, 3.0, 4.02, 5.1), slope=(0.4, 1.0), ring=(0.3, 0.7),
        detune=(1.0, 4.0)),
    "FM Bell": Fm("Chromatic Percussion", (1.0, 2.76), (5.4, 1.41), index=(0.3, 1.2), settling=(0.3, 1.0),
        second=(0.1, 0.3), ring=(1.0, 2.5), release=(0.3, 0.8)),
    "FM Electric Piano": Fm("Piano", (1.0, 1.0), (1.0, 14.0), index=(0.6, 1.8), settling=(0.05, 0.3),
        ring=(0.8, 2.0)),
    "FM Brass": Fm("Brass", index=(3.0, 6.0), settled=(0.5, 0.9), attack=(0.03, 0.08), release=(0.04, 0.08)),
    "FM Bass": Fm("Bass", (1.0,), (1.0,), index=(2.0, 5.0), settled=(0.05, 0.3), settling=(0.05, 0.3),
        ring=(0.8, 2.5)),
    "FM Organ": Fm("Organ", (1.0, 2.0, 4.0), (1.0, 2.0, 3.0), index=(0.2, 1.2), settled=(0.7, 1.0),
        release=(0.02, 0.04)),
    "FM Reed": Fm("Reed", (1.0,), (2.0,), index=(1.0, 2.5), settled=(0.6, 0.9), attack=(0.02, 0.05),
        release=(0.03, 0.06)),
    "Saw Lead": Waves("Synth Lead", sweep=(0.1, 0.8)),
    "Supersaw": Waves("Synth Lead", voices=7, detune=(6.0, 14.0), release=(0.05, 0.3)),
    "Pulse Lead": Waves("Synth Lead", width=(0.08, 0.35), voices=2, detune=(0.0, 3.0)),
    "Hollow Square": Waves("Synth Lead", even=(0.0, 0.1), slope=(0.9, 1.6)),
    "String Machine": Waves("Ensemble", voices=5, detune=(4.0, 9.0), attack=(0.08, 0.25), release=(0.15, 0.4),
        formants=VIOLIN_BODY),
    "Warm Pad": Waves("Synth Pad", slope=(1.6, 2.4), voices=5, detune=(3.0, 9.0), attack=(0.15, 0.4),
        release=(0.2, 0.5)),
    "Voice Ah": _voice(730.0, 1_150.0, 2_500.0),
    "Voice Eh": _voice(530.0, 1_850.0, 2_500.0),
    "Voice Oh": _voice(500.0, 850.0, 2_500.0),
    "Breathy Flute": Waves("Pipe", slope=(1.8, 2.6), noise=(0.03, 0.15), vibrato=(0.0, 8.0),
        attack=(0.04, 0.09)),
    "Stopped Pipe": Waves("Pipe", slope=(1.5, 2.2), even=(0.05, 0.2), noise=(0.005, 0.03), touch=(0.1, 0.2)),
    "Clarinet Reed": Waves("Reed", even=(0.05, 0.3), slope=(0.8, 1.3), formants=((1_500.0, 0.8, 6.0),),
        sweep=(-0.3, 0.0)),
    "Double Reed": Waves("Reed", slope=(0.9, 1.3), formants=((1_000.0, 0.4, 12.0), (2_900.0, 0.4, 8.0)),
        vibrato=(0.0, 6.0)),
    "Soft Brass": Waves("Brass", slope=(1.0, 1.6), touch=(0.8, 1.5), formants=((600.0, 0.8, 6.0),),
        sweep=(-0.5, -0.1), settling=(0.03, 0.1), attack=(0.03, 0.07)),
    "Tonewheel Organ": Waves("Organ", drawbars=(1, 2, 3, 4, 5, 6, 8), touch=(0.1, 0.4), sweep=(0.0, 0.0),
        sustain=(1.0, 1.0), attack=(0.004, 0.01), release=(0.01, 0.03)),
    "Bowed String": Waves("Strings", formants=VIOLIN_BODY, noise=(0.01, 0.04), vibrato=(0.0, 10.0),
        attack=(0.05, 0.15), release=(0.05, 0.15)),
}
"""The synthetic instruments by name."""
# fmt: on
