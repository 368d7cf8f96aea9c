"""Fine-tuning of a bundle: it is read, trained further on recorded samples, and written as a new bundle."""
