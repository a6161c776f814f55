//! How machines talk: TCP with mutual TLS, frames, requests and their answers.
