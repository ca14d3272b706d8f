"""Components of an EEG whose kinds are known: the brain's out of a recording, the others made."""

import numpy as np
import scipy
from eeg_features import electrodes

from rlx.cli.eeg import load_recording


def components():
    """Components of an EEG by kind: ``(weights at the electrodes, activity)``, and the places and rate.

    Those of the brain are unmixed from the recording: what has most of its power at 8 to 12 Hz. The
    others are what the kinds are known for: a blink is strong around the eyes, slow and rare; the mains
    are a tone; a muscle is close to one place and fast; a loose electrode is noise at one channel.
    """
    recording, rng = load_recording(), np.random.default_rng(0)
    fs, names = int(recording.fs), recording.names
    position = electrodes()
    places = np.stack([position[name] for name in names])

    def band(x, edges):
        kind = "high" if np.isscalar(edges) else "band"
        return scipy.signal.sosfiltfilt(scipy.signal.butter(4, edges, kind, fs=fs, output="sos"), x)

    eeg = band(recording.samples - recording.samples.mean(0), 1)
    whole = np.cov(eeg)
    main = scipy.linalg.eigh(whole)[1][:, -30:]
    share = main.T @ np.cov(band(eeg, (8, 12))) @ main, main.T @ whole @ main
    filters = main @ scipy.linalg.eigh(*share)[1][:, :-4:-1]
    maps, waves = (whole @ filters).T, filters.T @ eeg
    results = {
        f"brain {n}": (m, w * np.sqrt(np.mean(m**2)))
        for n, (m, w) in enumerate(zip(maps, waves, strict=True))
    }

    def pink(size):
        spec = np.fft.rfft(rng.normal(size=eeg.shape[1]))
        wave = np.fft.irfft(spec / np.sqrt(np.maximum(np.arange(len(spec)), 1)), eeg.shape[1])
        return band(wave / wave.std() * size, 1)

    t = np.arange(eeg.shape[1]) / fs
    lids = sum(np.exp(-0.5 * ((t - item) / 0.08) ** 2) for item in rng.uniform(0, t[-1], 9))
    eyes = np.array([[0.9, 0.35, -0.3], [0.9, -0.35, -0.3]])
    near = sum(1 / np.sum((places - eye) ** 2, 1) for eye in eyes)
    jaw = np.exp(-np.sum((places - position["Ft7"]) ** 2, 1) / 0.35**2)
    loose = np.array(names) == "C4"
    mains = 20 * np.sin(2 * np.pi * 60 * t)
    results["eye"] = near - near.mean(), band(lids * 150, 1) + pink(3)
    results["muscle"] = jaw - jaw.mean(), 20 * band(rng.normal(size=len(t)), (20, 75)) + pink(2)
    results["line noise"] = (
        places @ [0.3, 0.8, 0.2] + rng.normal(0, 0.2, len(names)),
        mains + pink(4),
    )
    results["channel noise"] = loose - loose.mean(), pink(20)
    return results, places, fs
