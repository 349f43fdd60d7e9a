"""What a user writes for a first answer with gemloupe: a text in, the next token out."""

import sys

from gemloupe import StandardizedTransformer

model = StandardizedTransformer(sys.argv[1])
with model.trace(sys.argv[2]):
    top = model.logits[:, -1].argmax(-1).save()
print(model.tokenizer.decode(top), flush=True)
