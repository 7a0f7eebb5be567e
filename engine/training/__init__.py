"""How the bundled model is made: corpus, tokenizer, training, export, evaluation."""
