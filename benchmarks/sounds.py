"""A made-up voice for the networks that listen, and what reaches them when it is streamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import sessions

from tilewright.assets.cache import asset_path

F32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]

RATE = 16_000
SEED = 2024
HARMONICS = 12

WINDOW, CONTEXT = 512, 64
"""New samples in each window of silero-vad, and those repeated before them."""

FRAMES, FRAME_STEP, FEATURES = 76, 8, 16
"""Mel frames of one openWakeWord embedding, frames to the next, embeddings of one decision."""

INT16 = 32_767


def voice(samples: int, seed: int = SEED) -> F32:
    """Harmonics of a wandering pitch in syllables with pauses, and noise: on -1..1, at RATE."""
    rng = np.random.default_rng(seed)
    seconds = np.arange(samples) / RATE
    pitch = 140 + 30 * np.sin(2 * np.pi * 0.7 * seconds + rng.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    tones = sum(
        np.sin(k * phase + rng.uniform(0, 6)) * rng.uniform(0.3, 1) / k for k in range(1, HARMONICS)
    )
    syllables = np.clip(np.sin(2 * np.pi * 3.1 * seconds + rng.uniform(0, 6)) + 0.3, 0, 1)
    phrases = np.sin(2 * np.pi * 0.4 * seconds + rng.uniform(0, 6)) > -0.4
    return np.asarray(
        0.25 * tones * syllables * phrases + rng.normal(0, 0.01, samples), dtype=np.float32
    )


def windows(count: int) -> F32:
    """[count, CONTEXT + WINDOW]: what silero-vad hears one after the other."""
    sound = np.concatenate([np.zeros(CONTEXT, np.float32), voice(count * WINDOW)])
    starts = WINDOW * np.arange(count)[:, None]
    heard: F32 = sound[starts + np.arange(CONTEXT + WINDOW)]
    return heard


def streamed(count: int) -> Iterator[tuple[Array, ...]]:
    """Windows with the state that the ones before have left: [1, 576] and [2, 1, 128]."""
    run = sessions.session(asset_path("silero-vad-static"), threads=1)
    state = np.zeros((2, 1, 128), np.float32)
    for window in windows(count):
        value = window[None]
        yield value, state
        state = run.run(["stateN"], {"input": value, "state": state})[0]


def recordings(steps: int, count: int) -> Iterator[tuple[Array, ...]]:
    """Runs of windows from silence: [steps, 576] and two states of zeros [1, 1, 128]."""
    heard = windows(steps * count).reshape(count, steps, CONTEXT + WINDOW)
    for recording in heard:
        yield recording, *np.zeros((2, 1, 1, 128), np.float32)


def sound(samples: int, count: int) -> Iterator[Array]:
    """[1, samples] in the range of 16-bit integers."""
    for index in range(count):
        yield np.round(INT16 * voice(samples, SEED + index))[None]


def mel_frames(count: int) -> Iterator[Array]:
    """[1, 76, 32, 1]: windows of the mel spectrogram, scaled as the embedding wants them."""
    heard = next(sound(RATE * (2 + count // 10), 1))
    mel = sessions.infer(asset_path("oww-melspectrogram"), threads=1)(heard)[0]
    frames = mel.reshape(-1, 32) / 10 + 2
    for index in range(count):
        yield np.ascontiguousarray(frames[None, FRAME_STEP * index :][:, :FRAMES, :, None])


def embeddings(count: int) -> Iterator[Array]:
    """[1, 16, 96]: successive embeddings."""
    embed = sessions.infer(asset_path("oww-embedding"), threads=1)
    vectors = np.concatenate([embed(f)[0].reshape(1, 96) for f in mel_frames(count + FEATURES)])
    for index in range(count):
        yield vectors[None, index : index + FEATURES]
