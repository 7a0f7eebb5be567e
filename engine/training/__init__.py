"""How a small language model is made, from nothing to a Hugging Face directory.

Read in this order:

1. ``documents``  what a training document is, and which part of it is learned
2. ``words``, ``stories``, ``numbers``, ``serving``, ``talk``  what the documents say; the sentences
   themselves are in ``data``
3. ``corpus``     the mixture, as an endless stream from one seed
4. ``tokenizer``  text to token ids
5. ``batches``    documents packed into rows
6. ``model``      the network
7. ``run``        the training loop: ``train(out_dir)``, or ``python -m engine.training OUT_DIR``
8. ``export``     the directory that others can load
9. ``generate``, ``evaluate``, ``card``  what the model can do, measured and written down
"""
