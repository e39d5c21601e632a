job "j" {
  group "g" {
    task "t" {
      driver = "raw_exec
    }
  }
}
