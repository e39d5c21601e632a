job "j" {
  meta {
    a = 1 / 0
  }
}
