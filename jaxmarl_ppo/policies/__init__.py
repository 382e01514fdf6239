"""Who can play, and what they answer when they are asked."""
