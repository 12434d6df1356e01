// Package archtest checks which package may import which.
//
// The rules are a table, [Rules]; [Check] holds a list of packages, as go list describes
// them, against it. The test in this package does so for the module. It imports nothing of
// ours.
package archtest
