package orders

import "github.com/onlyonce-go/onlyonce/services/publicid"

// An order and a shipment are known outside by their public ids only.
var (
	orderIDs    = publicid.NewType("ord_")
	shipmentIDs = publicid.NewType("shp_")
)
