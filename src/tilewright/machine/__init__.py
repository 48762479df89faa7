"""The simulated NPU: functional engines, discrete-event timing, checks, traces."""
