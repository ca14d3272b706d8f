"""Fourier transforms, and functions of frames and spectra of signals."""
