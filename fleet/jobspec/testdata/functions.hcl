locals {
  day = "monday"
}
job "f" {
  meta {
    a = timestamp()
    b = uper("x")
    c = var.colour
    d = local.days
    e = "${[for k in ["a"] : local.day2]}"
  }
  datacenters = "dc1"
  group "g" {
    task "t" {
      driver = "sim"
      env    = [1]
      config = "x"
    }
  }
}
