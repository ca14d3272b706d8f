"""The statistics of ``rlx regress``: intervals that hold their level, noise floors, false discoveries, power."""

import math

import numpy as np
import pytest
from recordings import recording

from rlx.regress import statistics
from rlx.regress.compare import compare

# Noise of unit variance, by name: what processes do on real machines.
NOISES = {
    "normal": lambda random, size: random.standard_normal(size),
    "heavy tails": lambda random, size: random.standard_t(3, size) / math.sqrt(3),
    "skewed": lambda random, size: (np.exp(random.standard_normal(size)) - 1.65) / 2.16,
    "two states": lambda random, size: random.choice([-1.0, 1.0], size),
    "rare states": lambda random, size: (
        0.3 * random.standard_normal(size) + 3 * (random.random(size) < 0.1)
    ),
    "another in each case": lambda random, size: (
        random.standard_normal(size) * np.repeat(np.exp(random.normal(0, 1, size // 5)), 5)
    ),
}


def test_an_effect_is_the_ratio_of_geometric_means_and_deterministic():
    base, new = np.log([1.0, 1.1, 0.9, 1.0, 1.0]), np.log([2.0, 2.2, 1.8, 2.0, 2.0])
    result = statistics.effect(base, new)
    assert result.ratio == pytest.approx(2.0)
    assert result.low < result.least < result.log_ratio < result.most < result.high
    assert result == statistics.effect(base, new)
    assert result.p < 1e-4


def test_an_effect_the_other_way_round_is_the_negative():
    base, new = [0.0, 0.01, 0.03], [0.2, 0.21, 0.19]
    first, other = statistics.effect(base, new), statistics.effect(new, base)
    assert first.log_ratio == pytest.approx(-other.log_ratio)
    assert first.p == pytest.approx(other.p)


def test_equal_numbers_are_no_certainty():
    result = statistics.effect([0.0] * 3, [0.001] * 3)
    assert result.low < 0 < result.high
    assert result.high - result.low > 0.004


def test_calm_processes_are_believed_to_be_as_noisy_as_others():
    noisy = statistics.Prior(0.1**2, 4)
    calm = statistics.effect([0.0, 0.001, 0.002], [0.1, 0.101, 0.102])
    warned = statistics.effect([0.0, 0.001, 0.002], [0.1, 0.101, 0.102], noisy)
    assert calm.low > 0.08
    assert warned.low < 0


def test_a_prior_is_the_usual_variance_and_weighs_as_much_as_groups_are_alike():
    random = np.random.default_rng(0)
    alike = statistics.prior_of(random.normal(0, 0.03, (400, 5)))
    assert alike.variance == pytest.approx(0.03**2, rel=0.1)
    assert alike.freedom == 10
    spreads = np.exp(random.normal(0, 1, (400, 1)))
    unlike = statistics.prior_of(spreads * random.normal(0, 0.03, (400, 5)))
    assert 0.3 < unlike.freedom < 2
    assert statistics.prior_of(random.normal(0, 0.03, (9, 5))) == statistics.Prior()


def test_a_noise_floor_is_what_95_of_100_comparisons_stay_within():
    random = np.random.default_rng(0)
    floor = statistics.noise_floor(random.normal(0, 0.03, (400, 5)))
    differences = random.normal(0, 0.03, (4000, 2, 5)).mean(2)
    real = np.quantile(np.abs(differences[:, 0] - differences[:, 1]), 0.95)
    assert floor == pytest.approx(real, rel=0.08)
    assert statistics.noise_floor([[0.0]]) is None
    assert statistics.noise_floor([]) is None


def test_a_noise_floor_of_calm_processes_is_that_of_others():
    calm = statistics.noise_floor([[0.0, 1e-6, 2e-6]], statistics.Prior(0.05**2, 1e6))
    assert calm == pytest.approx(1.96 * 0.05 * math.sqrt(2 / 3), rel=0.5)


def test_what_slows_pairs_down_together_drops_out():
    drift = [0.0, 0.2, -0.1, 0.1, 0.3]
    base, new = [index + 0.01 for index in drift], [index + 0.06 for index in drift]
    alone, paired = statistics.effect(base, new), statistics.effect(base, new, paired=True)
    assert alone.log_ratio == pytest.approx(paired.log_ratio) == pytest.approx(0.05)
    assert alone.low < 0 < 0.04 < paired.low
    assert statistics.differences(base, new) == pytest.approx([0.05] * 5)
    needed = [statistics.processes_to_decide(item, 0.01) or 1000 for item in (alone, paired)]
    assert needed[1] < needed[0]


def test_a_noise_floor_of_pairs():
    random = np.random.default_rng(0)
    noise = random.normal(0, 0.03, (400, 5))
    real = np.quantile(np.abs(random.normal(0, 0.03, (4000, 5)).mean(1)), 0.95)
    # Few processes of unequal spread have heavier tails than a normal distribution.
    assert 0.98 * real < statistics.noise_floor(noise, paired=True) < 1.15 * real


def test_many_cases_raise_p_values():
    assert statistics.adjusted([]) == []
    assert statistics.adjusted([0.01, 0.5, 0.9, 0.04]) == pytest.approx([0.04, 2 / 3, 0.9, 0.08])


def test_processes_to_decide_grow_towards_the_threshold():
    def needed(size):
        result = statistics.effect([0.0, 0.05, -0.05], [size, size + 0.05, size - 0.05])
        return statistics.processes_to_decide(result, 0.1)

    assert needed(0.0) < needed(0.05)
    assert needed(0.3) < needed(0.11)
    assert needed(0.0999) is None


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.slow
def test_intervals_of_five_processes_hold_their_level(paired, name):
    random = np.random.default_rng(2 if paired else 1)
    stored, count = 0, 600
    for _ in range(count):
        draws = 0.03 * np.asarray(NOISES[name](random, 10))
        drift = random.normal(0, 0.1, 5) if paired else 0.0
        result = statistics.effect(draws[:5] + drift, draws[5:] + drift + 0.1, paired=paired)
        stored += result.low <= 0.1 <= result.high
    assert stored / count >= 0.93


@pytest.mark.parametrize("turns", [None, "feed" * 4])
@pytest.mark.parametrize("name", NOISES)
@pytest.mark.slow
def test_unchanged_code_is_not_slower_one_time_in_a_thousand(name, turns):
    wrong = total = 0
    for seed in range(20):
        spread = (0.01, 0.03, 0.1, 0.3)[seed % 4]
        base, new = (
            recording(
                seed=2 * seed + value, cases=150, spread=spread, noise=NOISES[name], turns=turns
            )
            for value in (0, 1)
        )
        verdicts = compare(base, new).verdicts
        wrong += verdicts["slower"] + verdicts["faster"]
        total += 150
    assert wrong / 2 / total <= 0.001


@pytest.mark.parametrize("spread", [0.01, 0.03, 0.05])
@pytest.mark.slow
def test_a_quarter_more_time_is_found(spread):
    slower = {index * 10: 1.25 for index in range(10)}
    result = 0
    for seed in range(10):
        base = recording(seed=2 * seed, cases=100, spread=spread)
        new = recording(seed=2 * seed + 1, cases=100, spread=spread, slower=slower)
        cases = compare(base, new).cases
        result += sum(cases[index].verdict == "slower" for index in slower)
    assert result >= 90
