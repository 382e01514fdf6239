"""Six shuttles on a grid of one-way lanes, of which only the idle ones act."""
