variable "unset" {
  type = string
}
variable "low" {
  type    = number
  default = 1
  validation {
    condition     = var.low > 5
    error_message = "Too low."
  }
}
variable "wrong" {
  type    = number
  default = "many"
}
variable "odd" {
  typ = string
}
locals {
  a = local.b
  b = local.a
}
job "v" {
  meta {
    x = var.nope
  }
}
