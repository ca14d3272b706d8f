"""Where each ONNX operator is lowered. Made by `script/stubs` from the modules of `ops`. Edit those."""

# A module, a domain, and the names of the operators of it that the module registers.
MODULES: tuple[tuple[str, str, str], ...] = (
    (
        "rlx.importers.onnx.ops.activations",
        "",
        "Celu Dropout Elu Gelu HardSigmoid Hardmax LeakyRelu LogSoftmax Selu Shrink Softmax SwiGLU Swish ThresholdedRelu",
    ),
    (
        "rlx.importers.onnx.ops.attention",
        "",
        "Attention CausalConvWithState LinearAttention RotaryEmbedding",
    ),
    ("rlx.importers.onnx.ops.attention", "ai.onnx.preview", "FlexAttention"),
    (
        "rlx.importers.onnx.ops.contrib.activations",
        "com.microsoft",
        "BiasAdd BiasGelu BiasSoftmax BiasSplitGelu FastGelu Gelu QuickGelu",
    ),
    (
        "rlx.importers.onnx.ops.contrib.attention",
        "com.microsoft",
        "Attention MultiHeadAttention QAttention",
    ),
    ("rlx.importers.onnx.ops.contrib.distances", "com.microsoft", "CDist Inverse"),
    ("rlx.importers.onnx.ops.contrib.grouped_queries", "com.microsoft", "GroupQueryAttention"),
    (
        "rlx.importers.onnx.ops.contrib.integers",
        "com.microsoft",
        "DynamicQuantizeLSTM DynamicQuantizeMatMul MatMulIntegerToFloat QGemm",
    ),
    ("rlx.importers.onnx.ops.contrib.normalization", "", "SimplifiedLayerNormalization"),
    (
        "rlx.importers.onnx.ops.contrib.normalization",
        "com.microsoft",
        "EmbedLayerNormalization QEmbedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization",
    ),
    (
        "rlx.importers.onnx.ops.contrib.positions",
        "com.microsoft",
        "GatedRelativePositionBias RelativePositionBias RotaryEmbedding",
    ),
    (
        "rlx.importers.onnx.ops.contrib.products",
        "com.microsoft",
        "FusedConv FusedGemm FusedMatMul MatMulNBits TransposeMatMul",
    ),
    (
        "rlx.importers.onnx.ops.contrib.quantization",
        "com.microsoft",
        "QLinearAdd QLinearConcat QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearSoftmax QLinearWhere",
    ),
    (
        "rlx.importers.onnx.ops.contrib.standard",
        "com.microsoft",
        "DequantizeLinear ExpandDims GatherND QuantizeLinear Trilu Unique",
    ),
    (
        "rlx.importers.onnx.ops.contrib.windows",
        "com.microsoft",
        "NhwcMaxPool QLinearAveragePool QLinearConv QLinearGlobalAveragePool",
    ),
    ("rlx.importers.onnx.ops.control", "", "If Loop Scan"),
    (
        "rlx.importers.onnx.ops.convolution",
        "",
        "Conv ConvInteger ConvTranspose DeformConv QLinearConv",
    ),
    ("rlx.importers.onnx.ops.detection", "", "NonMaxSuppression TfIdfVectorizer"),
    (
        "rlx.importers.onnx.ops.elementwise",
        "",
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual HardSwish IsInf IsNaN Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh Where Xor",
    ),
    ("rlx.importers.onnx.ops.losses", "", "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"),
    ("rlx.importers.onnx.ops.ml.encoding", "ai.onnx.ml", "LabelEncoder OneHotEncoder ZipMap"),
    ("rlx.importers.onnx.ops.ml.linear", "ai.onnx.ml", "LinearClassifier LinearRegressor"),
    (
        "rlx.importers.onnx.ops.ml.scaling",
        "ai.onnx.ml",
        "ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer Normalizer Scaler",
    ),
    (
        "rlx.importers.onnx.ops.ml.trees",
        "ai.onnx.ml",
        "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
    ),
    ("rlx.importers.onnx.ops.ml.vectors", "ai.onnx.ml", "SVMClassifier SVMRegressor"),
    (
        "rlx.importers.onnx.ops.movement",
        "",
        "BlackmanWindow CenterCropPad Col2Im Compress Concat DepthToSpace Gather GatherElements GatherND HammingWindow HannWindow NonZero OneHot Pad ReverseSequence Scatter ScatterElements ScatterND Slice SpaceToDepth Split TensorScatter Tile Trilu Unique",
    ),
    (
        "rlx.importers.onnx.ops.normalization",
        "",
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization RMSNormalization",
    ),
    (
        "rlx.importers.onnx.ops.pooling",
        "",
        "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool",
    ),
    ("rlx.importers.onnx.ops.products", "", "Det Einsum Gemm MatMul MatMulInteger QLinearMatMul"),
    (
        "rlx.importers.onnx.ops.quantization",
        "",
        "DequantizeLinear DynamicQuantizeLinear QuantizeLinear",
    ),
    (
        "rlx.importers.onnx.ops.random",
        "",
        "Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    ),
    ("rlx.importers.onnx.ops.recurrent", "", "GRU LSTM RNN"),
    (
        "rlx.importers.onnx.ops.reductions",
        "",
        "ArgMax ArgMin CumProd CumSum MeanVarianceNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare TopK",
    ),
    ("rlx.importers.onnx.ops.sampling", "", "AffineGrid GridSample Resize RoiAlign Upsample"),
    (
        "rlx.importers.onnx.ops.sequences",
        "",
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence",
    ),
    (
        "rlx.importers.onnx.ops.shapes",
        "",
        "BitCast Cast CastLike Constant ConstantOfShape Expand EyeLike Flatten Identity Range Reshape Shape Size Squeeze Transpose Unsqueeze",
    ),
    ("rlx.importers.onnx.ops.spectra", "", "DFT MelWeightMatrix STFT"),
    ("rlx.importers.onnx.ops.training", "ai.onnx.preview.training", "Adagrad Adam Momentum"),
)
