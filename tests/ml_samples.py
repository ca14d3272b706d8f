"""Samples of ``ai.onnx.ml``: scaling, encoding, linear models, support vectors."""

from node_samples import Sample, normal, of

ML = "ai.onnx.ml"
ROWS = [(3, 4), (1, 5), (7, 2), (5, 16), (33, 9)]


@of(ML, "Binarizer")
def binarizer(rng, at):
    return Sample([normal(rng, *ROWS[at])], attrs={"threshold": 0.3 * at})


@of(ML, "ArrayFeatureExtractor")
def features(rng, at):
    n, c = ROWS[at]
    x = normal(rng, c) if at == 1 else normal(rng, n, c)
    return Sample([x, rng.integers(0, c, at + 1)])
