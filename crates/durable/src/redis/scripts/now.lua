-- Returns the time of the store's clock. Changes nothing.
--
-- returns the time in milliseconds

return present()
