"""Sound on its way out: files, the loudspeaker, and notes as they come."""
