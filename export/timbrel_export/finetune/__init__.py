"""Fine-tuning of a bundle: it is read, trained further on recorded samples, and written as a new bundle.

It lives here and not in training, since only export may both train and touch bundles; the steps that need no
bundle are in `timbrel_training.finetune`. `timbrel train` finds it through an entry point.
"""
