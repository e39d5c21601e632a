job "a" {
  group "g" {
    count =
  }
