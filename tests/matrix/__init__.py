"""What every API carries to every kind of endpoint: asked, checked, and written down."""
