"""Train a small language model from scratch and export it as a Hugging Face directory.

Read in this order:

1. ``documents``  training documents, and which parts of them are learned
2. ``words``, ``stories``, ``numbers``, ``serving``, ``talk``  the content of the documents; the
   sentences are in ``data``
3. ``corpus``     the mixture, an endless stream from one seed
4. ``tokenizer``  text to token ids
5. ``batches``    documents packed into rows
6. ``model``      the network
7. ``run``        the training loop: ``train(out_dir)``, or ``python -m engine.training OUT_DIR``
8. ``export``     writes the Hugging Face directory
9. ``generate``, ``evaluate``, ``card``  measure what the model can do, and write the model card
"""
