# a comment
---
services:
  web:
    image: nginx
