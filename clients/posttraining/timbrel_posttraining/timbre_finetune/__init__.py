"""The timbre encoder's second training: on what `locate` hears, of the sources and of the finished bundle."""
