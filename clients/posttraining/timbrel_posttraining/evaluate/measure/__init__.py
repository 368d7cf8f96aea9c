"""Measurements of a note's sound, and of many notes together: pure functions of audio and arrays.

Nothing here was trained in this project. Audio is mono float32 [samples] with its sample rate in Hz.
"""
