"""The papers that lessons cite, by the name that a tag gives: title, where it appeared, its number at arXiv or address.

A tag [paper: NAME, place] whose name is not here fails the build.
"""

from __future__ import annotations

PAPERS: dict[str, tuple[str, str, str]] = {
    "Ainslie et al. 2023": (
        "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
        "EMNLP",
        "2305.13245",
    ),
    "Ba et al. 2016": ("Layer Normalization", "arXiv", "1607.06450"),
    "Bahdanau et al. 2015": (
        "Neural Machine Translation by Jointly Learning to Align and Translate",
        "ICLR",
        "1409.0473",
    ),
    "Baydin et al. 2018": ("Automatic Differentiation in Machine Learning: a Survey", "JMLR", "1502.05767"),
    "Biderman et al. 2023": (
        "Pythia: A Suite for Analyzing Large Language Models Across Training and Scaling",
        "ICML",
        "2304.01373",
    ),
    "Black et al. 2022": ("GPT-NeoX-20B: An Open-Source Autoregressive Language Model", "ACL workshop", "2204.06745"),
    "Brown et al. 2020": ("Language Models are Few-Shot Learners", "NeurIPS", "2005.14165"),
    "Chen et al. 2016": ("Training Deep Nets with Sublinear Memory Cost", "arXiv", "1604.06174"),
    "Chen et al. 2023": (
        "Extending Context Window of Large Language Models via Positional Interpolation",
        "arXiv",
        "2306.15595",
    ),
    "Chowdhery et al. 2022": ("PaLM: Scaling Language Modeling with Pathways", "JMLR", "2204.02311"),
    "Dai et al. 2024": (
        "DeepSeekMoE: Towards Ultimate Expert Specialization in Mixture-of-Experts Language Models",
        "ACL",
        "2401.06066",
    ),
    "Dao et al. 2022": (
        "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
        "NeurIPS",
        "2205.14135",
    ),
    "DeepSeek-AI 2024": ("DeepSeek-V3 Technical Report", "arXiv", "2412.19437"),
    "Dettmers et al. 2023": ("QLoRA: Efficient Finetuning of Quantized LLMs", "NeurIPS", "2305.14314"),
    "Devlin et al. 2019": (
        "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        "NAACL",
        "1810.04805",
    ),
    "Dubey et al. 2024": ("The Llama 3 Herd of Models", "arXiv", "2407.21783"),
    "Elhage et al. 2021": (
        "A Mathematical Framework for Transformer Circuits",
        "Transformer Circuits Thread",
        "https://transformer-circuits.pub/2021/framework/index.html",
    ),
    "Fedus et al. 2021": (
        "Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient Sparsity",
        "JMLR",
        "2101.03961",
    ),
    "Geva et al. 2021": ("Transformer Feed-Forward Layers Are Key-Value Memories", "EMNLP", "2012.14913"),
    "Haviv et al. 2022": (
        "Transformer Language Models without Positional Encodings Still Learn Positional Information",
        "EMNLP Findings",
        "2203.16634",
    ),
    "He et al. 2016": ("Deep Residual Learning for Image Recognition", "CVPR", "1512.03385"),
    "Hendrycks and Gimpel 2016": ("Gaussian Error Linear Units (GELUs)", "arXiv", "1606.08415"),
    "Hoffmann et al. 2022": ("Training Compute-Optimal Large Language Models", "NeurIPS", "2203.15556"),
    "Holtzman et al. 2020": ("The Curious Case of Neural Text Degeneration", "ICLR", "1904.09751"),
    "Hu et al. 2021": ("LoRA: Low-Rank Adaptation of Large Language Models", "ICLR", "2106.09685"),
    "Hu et al. 2024": (
        "MiniCPM: Unveiling the Potential of Small Language Models with Scalable Training Strategies",
        "COLM",
        "2404.06395",
    ),
    "Jiang et al. 2023": ("Mistral 7B", "arXiv", "2310.06825"),
    "Jiang et al. 2024": ("Mixtral of Experts", "arXiv", "2401.04088"),
    "Jordan et al. 2024": (
        "Muon: An optimizer for hidden layers in neural networks",
        "blog",
        "https://kellerjordan.github.io/posts/muon/",
    ),
    "Kaplan et al. 2020": ("Scaling Laws for Neural Language Models", "arXiv", "2001.08361"),
    "Keskar et al. 2019": (
        "CTRL: A Conditional Transformer Language Model for Controllable Generation",
        "arXiv",
        "1909.05858",
    ),
    "Kingma and Ba 2015": ("Adam: A Method for Stochastic Optimization", "ICLR", "1412.6980"),
    "Korthikanti et al. 2022": ("Reducing Activation Recomputation in Large Transformer Models", "MLSys", "2205.05198"),
    "Kwon et al. 2023": (
        "Efficient Memory Management for Large Language Model Serving with PagedAttention",
        "SOSP",
        "2309.06180",
    ),
    "Leviathan et al. 2023": ("Fast Inference from Transformers via Speculative Decoding", "ICML", "2211.17192"),
    "Lewis et al. 2020": (
        "BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, Translation, and "
        "Comprehension",
        "ACL",
        "1910.13461",
    ),
    "Li et al. 2022": ("Competition-Level Code Generation with AlphaCode", "Science", "2203.07814"),
    "Loshchilov and Hutter 2017": ("SGDR: Stochastic Gradient Descent with Warm Restarts", "ICLR", "1608.03983"),
    "Loshchilov and Hutter 2019": ("Decoupled Weight Decay Regularization", "ICLR", "1711.05101"),
    "Lotfi et al. 2024": ("Non-Vacuous Generalization Bounds for Large Language Models", "ICML", "2312.17173"),
    "McCandlish et al. 2018": ("An Empirical Model of Large-Batch Training", "arXiv", "1812.06162"),
    "Micikevicius et al. 2018": ("Mixed Precision Training", "ICLR", "1710.03740"),
    "Nguyen et al. 2024": (
        "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs",
        "ICLR",
        "2407.01082",
    ),
    "OpenAI 2023": ("GPT-4 Technical Report", "arXiv", "2303.08774"),
    "Pascanu et al. 2013": ("On the difficulty of training Recurrent Neural Networks", "ICML", "1211.5063"),
    "Patterson et al. 2021": ("Carbon Emissions and Large Neural Network Training", "arXiv", "2104.10350"),
    "Peng et al. 2023": ("YaRN: Efficient Context Window Extension of Large Language Models", "ICLR", "2309.00071"),
    "Press and Wolf 2017": ("Using the Output Embedding to Improve Language Models", "EACL", "1608.05859"),
    "Press et al. 2021": (
        "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
        "ICLR",
        "2108.12409",
    ),
    "Radford et al. 2019": (
        "Language Models are Unsupervised Multitask Learners",
        "OpenAI",
        "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
    ),
    "Raffel et al. 2020": (
        "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        "JMLR",
        "1910.10683",
    ),
    "Rajbhandari et al. 2020": (
        "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        "SC",
        "1910.02054",
    ),
    "Rumelhart et al. 1986": (
        "Learning representations by back-propagating errors",
        "Nature",
        "https://doi.org/10.1038/323533a0",
    ),
    "Sennrich et al. 2016": ("Neural Machine Translation of Rare Words with Subword Units", "ACL", "1508.07909"),
    "Shannon 1948": (
        "A Mathematical Theory of Communication",
        "Bell System Technical Journal",
        "https://doi.org/10.1002/j.1538-7305.1948.tb01338.x",
    ),
    "Shaw et al. 2018": ("Self-Attention with Relative Position Representations", "NAACL", "1803.02155"),
    "Shazeer 2019": ("Fast Transformer Decoding: One Write-Head is All You Need", "arXiv", "1911.02150"),
    "Shazeer 2020": ("GLU Variants Improve Transformer", "arXiv", "2002.05202"),
    "Shazeer et al. 2017": (
        "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer",
        "ICLR",
        "1701.06538",
    ),
    "Stahlberg and Byrne 2019": ("On NMT Search Errors and Model Errors: Cat Got Your Tongue?", "EMNLP", "1908.10090"),
    "Su et al. 2021": ("RoFormer: Enhanced Transformer with Rotary Position Embedding", "Neurocomputing", "2104.09864"),
    "Touvron et al. 2023": ("LLaMA: Open and Efficient Foundation Language Models", "arXiv", "2302.13971"),
    "Vaswani et al. 2017": ("Attention Is All You Need", "NeurIPS", "1706.03762"),
    "Williams et al. 2009": (
        "Roofline: An Insightful Visual Performance Model for Multicore Architectures",
        "Communications of the ACM",
        "https://doi.org/10.1145/1498765.1498785",
    ),
    "Witten and Bell 1991": (
        "The Zero-Frequency Problem: Estimating the Probabilities of Novel Events in Adaptive Text Compression",
        "IEEE Transactions on Information Theory",
        "https://doi.org/10.1109/18.87000",
    ),
    "Wu et al. 2016": (
        "Google's Neural Machine Translation System: Bridging the Gap between Human and Machine Translation",
        "arXiv",
        "1609.08144",
    ),
    "Xiao et al. 2024": ("Efficient Streaming Language Models with Attention Sinks", "ICLR", "2309.17453"),
    "Xiong et al. 2020": ("On Layer Normalization in the Transformer Architecture", "ICML", "2002.04745"),
    "Zhang and Sennrich 2019": ("Root Mean Square Layer Normalization", "NeurIPS", "1910.07467"),
    "Zoph et al. 2022": ("ST-MoE: Designing Stable and Transferable Sparse Expert Models", "arXiv", "2202.08906"),
}


def cited(name: str) -> str:
    """One line of the list of papers, in Markdown. Raises KeyError for one that is not in the table."""
    title, place, where = PAPERS[name]
    address = where if where.startswith("http") else f"https://arxiv.org/abs/{where}"
    return f"{name}. [{title}]({address}), {place}."
