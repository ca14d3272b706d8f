"""Fourier transforms, and what is made of frames and spectra of signals."""
