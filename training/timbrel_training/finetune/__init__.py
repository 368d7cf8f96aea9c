"""Fine-tuning: a trained note transformer learns new instruments without forgetting the old ones."""
