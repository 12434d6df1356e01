package shop

// MinorUnits lets tests go through all currencies.
var MinorUnits = minorUnits
