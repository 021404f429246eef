"""What about a model was not understood, so that it is refused rather than quantized wrongly."""

from workbench.words import Sentence

NO_BLOCKS = Sentence("{architecture} cannot be quantized: no list of blocks called layers was found in it.")
NO_NORM = Sentence("{architecture} cannot be quantized: no norm follows its last block.")
BLOCK_LISTS = Sentence(
    "{architecture} cannot be quantized: its blocks should be called {wanted}, but the files hold {found}."
)
WIDE_TENSOR = Sentence(
    "{architecture} cannot be quantized: the weight {name} has {dimensions} {dimensions:dimension|dimensions}, "
    "and what is done with it is not known."
)
UNKNOWN_TENSOR = Sentence("{architecture} cannot be quantized: its code has no place for the tensor {name}.")
NOT_A_LINEAR = Sentence("{architecture} cannot be quantized: in its code {name} is no linear layer.")
EXPERTS = Sentence("{architecture} cannot be quantized: its experts do more than down(act(gate) · up).")
ENTRY = Sentence("{architecture} cannot be quantized: more than a factor is applied to its embeddings.")
ENDING = Sentence("{architecture} cannot be quantized: what it does to its logits is not known.")
NOT_FINITE = Sentence("{architecture} cannot be quantized: what its first block gives is not finite.")
STOPPED = Sentence("{architecture} cannot be quantized: its first block does not run by itself ({reason}).")
