"""What tests share: a scripted upstream, well-formed answers, a router on a free port."""
