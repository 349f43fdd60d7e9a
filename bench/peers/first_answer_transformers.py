"""What a user writes for a first answer with transformers: a text in, the next token out."""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
with torch.no_grad():
    logits = model(**tokenizer(sys.argv[2], return_tensors="pt"), logits_to_keep=1).logits
print(tokenizer.decode(logits[0, -1].argmax()), flush=True)
