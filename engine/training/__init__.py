"""Train a small language model from scratch and export it as a Hugging Face directory.

Read in this order:

1. ``documents``  training documents, and which parts of them are learned
2. ``words``, ``stories``, ``numbers``, ``serving``, ``talk``, ``values``, ``tools``, ``records``,
   ``recall``  the content of the documents; the sentences are in ``data/*.toml``
3. ``corpus``     the mixture, an endless stream from one seed
4. ``tokenizer``  text to token ids
5. ``model``      the network
6. ``run``        batches and the training loop: ``train(out_dir)``, or ``underglass train``
7. ``export``     writes the Hugging Face directory
8. ``evaluate``, ``evaluate_tools``  measure what the model can do, and write the model card
"""
