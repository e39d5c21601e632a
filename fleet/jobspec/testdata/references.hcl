locals {
  a = local.b
  b = "${local.a}!"
  c = 1
  c = 2
}
job "v" {}
